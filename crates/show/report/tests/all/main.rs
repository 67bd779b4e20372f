//! Every answer as text, JSON and page.

#![allow(clippy::unwrap_used)] // what is missing or goes wrong fails its test

mod check;
mod common;
mod html;
mod json;
mod links;
mod predictions;
mod runs;
mod schemas;
mod settings;
mod text;
