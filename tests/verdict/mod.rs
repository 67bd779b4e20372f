//! The verdict, held by properties that need no label: `cargo test -p busbw --test all verdict`.
//!
//! Each input at hand (logs, cases, tables, reproductions) is read, judged and shown in this process, as `busbw explain`
//! does it; then it is changed in a way that must not change the answer, and judged again. A failure names the input, the
//! change and both answers.

#![allow(clippy::unwrap_used)] // in helpers of tests too

mod answer;
mod changes;
mod held;
mod inputs;
mod nccl_tests;

mod buried;
mod cut;
mod dressed;
mod files;
mod harmless;
mod headline;
mod heads;
mod hosts;
mod machine;
mod pasted;
mod redacted;
mod relaunched;
mod reproductions;
mod scaled;
