//! Progress bars of long work, on a terminal only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};
use std::time::Duration;

/// A line at the terminal's lower end; gone when this goes out of scope, and never there where nobody looks.
pub struct Bar(Option<ProgressBar>);

impl Bar {
    /// Of `all` steps, drawn as `template` says.
    pub fn new(all: u64, template: &str) -> Self {
        Bar(io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(all), ProgressDrawTarget::stderr_with_hz(5));
            let style = ProgressStyle::with_template(template);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        }))
    }

    /// None, where there would be too little to see.
    pub fn none() -> Self {
        Bar(None)
    }

    /// Nobody sees it: say it in lines, if it is worth them.
    pub fn is_hidden(&self) -> bool {
        self.0.is_none()
    }

    /// What is drawn, to be moved from other threads.
    pub fn drawn(&self) -> Option<ProgressBar> {
        self.0.clone()
    }

    /// So much is done, and this is under way.
    pub fn show(&self, done: usize, all: usize, doing: String) {
        if let Some(bar) = &self.0 {
            bar.set_length(all as u64);
            bar.set_message(doing);
            bar.set_position(done as u64);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
