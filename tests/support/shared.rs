//! What tests of a program share. A static is never dropped, so that what lies in one stays behind when the program ends.

use super::skip::Skip;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A value that is made when a test asks for it, and dropped when the last test that has it ends.
pub struct Shared<T>(Mutex<Weak<T>>);

impl<T> Shared<T> {
    /// Nothing yet.
    pub const fn new() -> Self {
        Shared(Mutex::new(Weak::new()))
    }

    /// The value, made unless another test has it.
    pub fn get(&self, make: impl FnOnce() -> Result<T, Skip>) -> Result<Arc<T>, Skip> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = shared.upgrade() {
            return Ok(value);
        }
        let made = Arc::new(make()?);
        *shared = Arc::downgrade(&made);
        Ok(made)
    }
}
