//! What the monitor makes of samples: text, JSON, a screen, a page to scrape.

#![allow(clippy::unwrap_used)] // what is missing or goes wrong fails its test

mod common;
mod moments;
mod screen;
mod serve;
mod svg;
