//! A token in a credential of munge's: only the user who made it can decode it, on hosts that have one munge key.

use crate::error::SET_TOKEN;
use crate::{Error, Result};
use busbw_transport::Token;
use std::io::Write;
use std::process::{Command, Stdio};

/// The statuses of `unmunge` with which it tells the payload of a sound credential: success, and that this host has decoded it
/// before, as each rank of a host but the first will hear (munge 0.5.15: unmunge.c's main, munge.h's EMUNGE_CRED_REPLAYED).
const SOUND: [i32; 2] = [0, 17];

/// Whether the program is there, and its daemon answers.
pub(super) fn answers() -> bool {
    run(&["munge", "--no-input"], "").is_ok_and(|(status, ..)| status == Some(0))
}

/// A credential that only this user can decode, for as long as munge allows.
pub(super) fn encode(token: &Token) -> Result<String> {
    let restrict = format!("--restrict-uid={}", nix::unistd::geteuid());
    let cannot =
        |problem: &str| Error::Join(format!("munge makes no credential for this job's token ({problem}); {SET_TOKEN}"));
    let (status, credential, problem) =
        run(&["munge", &restrict, "--ttl=-1"], &token.to_string()).map_err(|e| cannot(&e.to_string()))?;
    match status {
        Some(0) => Ok(credential.trim().to_owned()),
        _ => Err(cannot(problem.trim())),
    }
}

/// The token in rank 0's credential.
pub(super) fn decode(credential: &str) -> Result<Token> {
    let cannot = |problem: &str| {
        Error::Join(format!(
            "munge on this host does not accept rank 0's credential ({problem}): every host needs the same munge key, and every rank the \
             same user; or {SET_TOKEN}"
        ))
    };
    let (status, text, problem) = run(&["unmunge", "--keys=UID"], credential).map_err(|e| cannot(&e.to_string()))?;
    if !status.is_some_and(|status| SOUND.contains(&status)) {
        return Err(cannot(problem.trim()));
    }
    let (uid, token) = told(&text).ok_or_else(|| cannot("it holds no token"))?;
    // Anybody can make a credential that we can decode, with a token that he knows.
    if uid != nix::unistd::geteuid().as_raw() {
        return Err(cannot(&format!("it was made by user {uid}")));
    }
    Ok(token)
}

/// Who made it, and the token: `UID:  name (1000)`, an empty line, the payload.
fn told(text: &str) -> Option<(u32, Token)> {
    let (metadata, payload) = text.split_once("\n\n")?;
    let (_, uid) = metadata.strip_prefix("UID:")?.rsplit_once('(')?;
    Some((uid.trim_end().strip_suffix(')')?.parse().ok()?, payload.trim().parse().ok()?))
}

/// Its exit status, and what it wrote.
fn run(words: &[&str], input: &str) -> std::io::Result<(Option<i32>, String, String)> {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    // A program that has ended without reading tells why itself.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code(), text(&output.stdout), text(&output.stderr)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_unmunge_prints() {
        let digits = "00112233445566778899aabbccddeeff";
        let printed = |uid: &str| format!("UID:              {uid}\n\n{digits}");
        for (uid, number) in [("root (0)", 0), ("??? (1234)", 1234), ("we(i)rd (7)", 7)] {
            let (read, token) = told(&printed(uid)).unwrap();
            assert_eq!((read, token.to_string().as_str()), (number, digits), "{uid}");
        }
        for text in ["", "UID: root (0)", "UID: root (0)\n\n", "UID: root (x)\n\n00", digits] {
            assert!(told(text).is_none(), "{text:?}");
        }
    }
}
