//! What is held of rules and of what they reach, apart from the rules themselves.

mod cards;
mod endings;
mod known_faults;
mod published_tables;
mod reports;
mod rules;
mod stopped;
mod variables;
mod waits;
mod watched;
