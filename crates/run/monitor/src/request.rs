//! What a scraper asks for: the head of its request, judged. Any bytes may come.

use std::net::IpAddr;

/// A scraper's request has some hundred bytes.
const LONGEST: usize = 8 << 10;
const MOST_HEADERS: usize = 64;

/// The names, in lower case, that this server may be asked for by.
///
/// A page whose name its owner points to 127.0.0.1 (DNS rebinding) makes the visitor's browser read what is served there, and
/// tells on the way the name by which it asks. So a name has to be known; an address has no owner who could point it elsewhere.
#[derive(Debug, Clone)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// This host's own name, and `names` beside it.
    pub fn and(names: &[String]) -> Self {
        let own = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        Hosts(names.iter().cloned().chain(own).map(|name| name.to_ascii_lowercase()).collect())
    }

    fn has(&self, name: &str) -> bool {
        let known = |known: &String| known == name;
        name.parse::<IpAddr>().is_ok() || name == "localhost" || self.0.iter().any(known)
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    Metrics {
        head_only: bool,
    },
    /// The status, and what to do.
    Refused(&'static str, String),
}

/// What the bytes so far ask for; none while the head goes on. Lines may end without a carriage return (RFC 9112, section 2.2).
pub fn judge(bytes: &[u8], hosts: &Hosts) -> Option<Request> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    // No more is looked at, so that the answer is the same however the bytes come in.
    match request.parse(&bytes[..bytes.len().min(LONGEST)]) {
        Ok(httparse::Status::Complete(_)) => Some(asked(&request, hosts)),
        Ok(httparse::Status::Partial) if bytes.len() < LONGEST => None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            Some(refused("431 Request Header Fields Too Large"))
        }
        Err(_) => Some(refused("400 Bad Request")),
    }
}

fn asked(request: &httparse::Request, hosts: &Hosts) -> Request {
    let named: Vec<&[u8]> = request
        .headers
        .iter()
        .filter(|header| header.name.eq_ignore_ascii_case("host"))
        .map(|host| host.value)
        .collect();
    match named[..] {
        // A browser always tells the host.
        [] => {}
        [host] => {
            let name = name(&String::from_utf8_lossy(host));
            if !hosts.has(&name) {
                return misdirected(&name);
            }
        }
        _ => return refused("400 Bad Request"),
    }
    let path = request.path.and_then(|target| target.split('?').next());
    match (request.method, path) {
        (Some(method @ ("GET" | "HEAD")), Some("/metrics")) => Request::Metrics { head_only: method == "HEAD" },
        (Some("GET" | "HEAD"), _) => refused("404 Not Found"),
        _ => refused("405 Method Not Allowed"),
    }
}

/// The name or address of a Host header, without port, brackets and the dot of the root.
fn name(host: &str) -> String {
    let name = match host.trim().rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host.trim(),
    };
    name.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase()
}

fn misdirected(name: &str) -> Request {
    let name = name.escape_default();
    let remedy = format!(
        "this server does not know that it is called \"{name}\"; ask for its address, or start busbw monitor with \
         --prometheus-host {name}"
    );
    Request::Refused("421 Misdirected Request", remedy)
}

fn refused(status: &'static str) -> Request {
    Request::Refused(status, "only GET and HEAD of /metrics are served".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_calls_this_host_by_its_own_name_is_refused() {
        let hosts = Hosts(vec!["node7".into(), "node7.example".into()]);
        for (host, known) in [
            ("127.0.0.1:9820", true),
            ("127.0.0.1", true),
            ("[::1]:9820", true),
            ("[fe80::1]", true),
            ("10.0.0.7:9820", true),
            ("localhost:9820", true),
            ("LocalHost.", true),
            ("node7:9820", true),
            ("Node7.Example:9820", true),
            ("evil.example:9820", false),
            ("127.0.0.1.evil.example:9820", false),
            ("localhost.evil.example", false),
            ("node7.example.evil.example", false),
            ("0x7f.1", false),
            ("", false),
            ("node7\u{fffd}", false),
        ] {
            let request = format!("GET /metrics HTTP/1.1\r\nhOST: {host}\r\n\r\n");
            match judge(request.as_bytes(), &hosts) {
                Some(Request::Metrics { head_only: false }) => assert!(known, "{host}"),
                Some(Request::Refused("421 Misdirected Request", remedy)) => {
                    assert!(!known && remedy.contains("--prometheus-host"), "{host}: {remedy}");
                    assert!(remedy.is_ascii(), "{remedy}");
                }
                other => panic!("{host}: {other:?}"),
            }
        }
        let two = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
        assert!(matches!(judge(two, &hosts), Some(Request::Refused("400 Bad Request", _))));
    }

    #[test]
    fn a_head_is_judged_when_its_last_line_is_there_and_not_before() {
        let hosts = Hosts(Vec::new());
        for request in
            ["GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /metrics HTTP/1.0\nHost: localhost\n\n"]
        {
            for end in 0..request.len() {
                assert_eq!(judge(&request.as_bytes()[..end], &hosts), None, "{end} bytes of {request:?}");
            }
            assert_eq!(judge(request.as_bytes(), &hosts), Some(Request::Metrics { head_only: false }));
        }
        let long = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(LONGEST));
        for bytes in [&long.as_bytes()[..LONGEST], long.as_bytes()] {
            let answer = judge(bytes, &hosts);
            assert!(matches!(answer, Some(Request::Refused("431 Request Header Fields Too Large", _))), "{answer:?}");
        }
    }
}
