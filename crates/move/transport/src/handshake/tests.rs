//! Both ends over loopback and by hand: who is let in, and what a false end gets.

use super::*;
use std::net::TcpListener;
