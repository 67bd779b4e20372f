//! What is held of rules and of what they reach, apart from the rules themselves.

mod published_tables;
mod rules;
