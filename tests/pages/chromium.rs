//! A headless Chromium for tests of pages, or the reason why not.

use crate::skip::{Skip, find};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use headless_chrome::protocol::cdp::{Emulation, Page as Cdp};
use headless_chrome::{Browser, LaunchOptions, Tab};
use serde_json::Value;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// What one step in a page may take on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(120);
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// A browser; gone when dropped, with its profile and what else it keeps in files.
pub struct Chromium {
    browser: Browser,
    _files: TempDir,
}

impl Chromium {
    /// Starts a browser.
    pub fn start() -> Result<Self, Skip> {
        let program = NAMES.iter().find_map(|name| find(name));
        let program = program.ok_or(Skip("chromium is missing; make setup installs it".into()))?;
        let files = tempfile::tempdir().expect("a temporary folder can be made");
        let folder = files.path().display().to_string();
        let options = LaunchOptions {
            path: Some(program),
            user_data_dir: Some(files.path().join("profile")),
            process_envs: Some(HashMap::from([("TMPDIR".to_string(), folder)])),
            // Chromium's own sandbox wants rights that root in a container lacks. Pages are our own.
            sandbox: false,
            window_size: Some((1200, 1000)),
            idle_browser_timeout: PATIENCE,
            args: vec![
                OsStr::new("--disable-gpu"),
                OsStr::new("--hide-scrollbars"),
                OsStr::new("--disable-dev-shm-usage"),
            ],
            ..LaunchOptions::default()
        };
        Ok(Chromium { browser: Browser::new(options).expect("chromium starts"), _files: files })
    }

    /// Opens a page of this machine.
    pub fn open(&self, file: &Path) -> Page {
        let file = file.canonicalize().expect("the page was written");
        self.visit(&format!("file://{}", file.display()))
    }

    /// Opens the page at an address.
    pub fn visit(&self, address: &str) -> Page {
        let tab = self.browser.new_tab().expect("a tab");
        tab.set_default_timeout(PATIENCE);
        tab.navigate_to(address).and_then(|tab| tab.wait_until_navigated()).expect("the page opens");
        Page(tab)
    }
}

/// A page as a reader has it before them.
pub struct Page(Arc<Tab>);

impl Page {
    pub fn value(&self, expression: &str) -> Value {
        self.evaluated(expression, false)
    }

    /// What a promise in the page comes to.
    pub fn awaited(&self, promise: &str) -> Value {
        self.evaluated(promise, true)
    }

    fn evaluated(&self, expression: &str, awaited: bool) -> Value {
        let result = self.0.evaluate(expression, awaited);
        result.unwrap_or_else(|e| panic!("{expression}: {e}")).value.unwrap_or(Value::Null)
    }

    pub fn text(&self, expression: &str) -> String {
        self.value(expression).as_str().unwrap_or_else(|| panic!("{expression} is no text")).to_string()
    }

    /// Clicks on what a selector finds.
    pub fn click(&self, selector: &str) {
        self.reach(selector);
        let done = self.0.find_element(selector).and_then(|element| element.click().map(drop));
        done.unwrap_or_else(|e| panic!("click on {selector}: {e}"));
    }

    /// Moves the pointer over what a selector finds.
    pub fn point_at(&self, selector: &str) {
        self.reach(selector);
        let done = self.0.find_element(selector).and_then(|element| element.move_mouse_over().map(drop));
        done.unwrap_or_else(|e| panic!("point at {selector}: {e}"));
    }

    /// Presses a key, where the focus is.
    pub fn press(&self, key: &str) {
        self.0.press_key(key).unwrap_or_else(|e| panic!("press {key}: {e}"));
    }

    /// Shows the page as on another medium (`print`) or to readers who prefer `dark` or `light`.
    pub fn as_seen(&self, medium: &str, scheme: &str) {
        let feature = Emulation::MediaFeature { name: "prefers-color-scheme".into(), value: scheme.into() };
        let seen = Emulation::SetEmulatedMedia { media: Some(medium.into()), features: Some(vec![feature]) };
        self.0.call_method(seen).expect("another medium");
    }

    /// Keeps a picture of the whole page, for a person to look at.
    pub fn keep(&self, file: &Path) {
        let height =
            self.value("document.documentElement.scrollHeight").as_f64().unwrap_or(1000.0).clamp(600.0, 8000.0);
        let clip = Cdp::Viewport { x: 0.0, y: 0.0, width: 1200.0, height, scale: 1.0 };
        let whole = Cdp::CaptureScreenshot {
            format: Some(Cdp::CaptureScreenshotFormatOption::Png),
            quality: None,
            clip: Some(clip),
            from_surface: Some(true),
            capture_beyond_viewport: Some(true),
            optimize_for_speed: None,
        };
        let picture = self.0.call_method(whole).expect("a picture").data;
        std::fs::write(file, BASE64_STANDARD.decode(picture).expect("base64")).expect("the picture can be kept");
    }

    /// Scrolls to what a selector finds. Elements of SVG are found by their rectangle.
    fn reach(&self, selector: &str) {
        self.value(&format!("document.querySelector({selector:?}).scrollIntoView({{ block: 'center' }})"));
    }
}

/// Where pictures are kept: `target/screenshots`.
pub fn album() -> PathBuf {
    let folder = crate::skip::root_folder().join("target/screenshots");
    std::fs::create_dir_all(&folder).expect("a folder for pictures");
    folder
}
