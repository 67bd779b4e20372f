//! Every answer as text, JSON and page.

#![allow(clippy::unwrap_used)] // what is missing or goes wrong fails its test

mod advise;
mod check;
mod common;
mod html;
mod json;
mod known_faults;
mod links;
mod predictions;
mod runs;
mod schemas;
mod settings;
mod text;
