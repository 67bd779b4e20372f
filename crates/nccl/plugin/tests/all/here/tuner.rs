//! The tuner, played by a C program as NCCL calls it: every version, tables of all kinds, and what goes wrong.

use crate::plugin;
use crate::skip::{Skip, needed};
use crate::support::{C, clean};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const VERSIONS: std::ops::RangeInclusive<u32> = 2..=6;
/// Function, bytes, operations, registered: what the program asks for.
const OPERATIONS: &str = "4 4096 1 0\n4 1048576 1 0\n4 1073741824 1 0\n2 1048576 1 1\n0 1048576 1 0\n";
/// Algorithm, protocol, channels, chunk: what NCCL goes by where nobody tunes.
const OWN: [&str; 5] = ["0 0 0 131072", "0 1 0 131072", "1 2 0 131072", "1 1 0 131072", "1 1 0 131072"];

const TABLE: &str = r#"
format = "busbw.tuning/1"

[[choice]]
collective = "all_reduce"
to = "64K"
ranks = 16
nodes = 2
algorithm = "Ring"
protocol = "LL"
channels = 3
gain_percent = [3.1, 7.5]

[[choice]]
collective = "all_reduce"
from = "1M"
to = "1M"
algorithm = "Tree"
protocol = "Simple"
chunk = "64K"
gain_percent = [1.0, 2.0]

[[choice]]
collective = "broadcast"
algorithm = "NVLSTree"
protocol = "Simple"
"#;

/// The program, and a home without a table.
struct Player {
    program: PathBuf,
    home: TempDir,
    _c: C,
}

/// What the program printed, line by line, and what the tuner logged.
struct Played {
    choices: Vec<String>,
    log: String,
}

impl Player {
    fn new() -> Result<Self, Skip> {
        let c = C::compiler()?;
        Ok(Player { program: c.compile("tune", &["tune.c"]), home: tempfile::tempdir().unwrap(), _c: c })
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Plays a communicator of `[ranks, nodes, NVLink domains]`.
    fn play(&self, version: u32, [ranks, nodes, domains]: [u32; 3], variables: &[(&str, &str)]) -> Played {
        let mut command = Command::new(&self.program);
        clean(&mut command);
        for name in ["NCCL_CTA_POLICY", "NCCL_ALGO", "NCCL_PROTO", "BUSBW_TUNING_TABLE", "XDG_CONFIG_HOME"] {
            command.env_remove(name);
        }
        command.arg(plugin::library()).args([version, ranks, nodes, domains].map(|number| number.to_string()));
        command.env("HOME", self.home.path()).envs(variables.iter().copied());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(OPERATIONS.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "version {version}: {}: {log}", output.status);
        let choices = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
        Played { choices, log }
    }

    fn with_table(&self, version: u32, communicator: [u32; 3], table: &Path) -> Played {
        self.play(version, communicator, &[("BUSBW_TUNING_TABLE", table.to_str().unwrap())])
    }
}

#[test]
fn without_a_table_nccl_chooses_by_itself() {
    let player = needed!(Player::new());
    for version in VERSIONS {
        let played = player.play(version, [16, 2, 2], &[]);
        assert_eq!(played.choices, OWN, "version {version}");
        assert_eq!(played.log, "", "version {version}");
    }
}

#[test]
fn a_table_is_followed_in_every_version() {
    let player = needed!(Player::new());
    let table = player.file("table.toml", TABLE.as_bytes());
    for version in VERSIONS {
        let Played { choices, log } = player.with_table(version, [16, 2, 2], &table);
        let chunk = if version >= 6 { "65536" } else { "131072" };
        let expected = ["1 0 3 131072", &format!("0 2 0 {chunk}"), OWN[2], OWN[3], OWN[4]];
        assert_eq!(choices, expected, "version {version}");
        let says = [
            "INFO TUNER/busbw : 3 choices of ",
            "INFO TUNER/busbw : 3 of 3 choices are for 16 ranks on 2 nodes: ",
            "INFO TUNER/busbw : choice 1: all_reduce from 0 B goes by Ring LL, measured 3.1 to 7.5% faster",
            "INFO TUNER/busbw : choice 3 is not followed: NCCL cannot do it here",
        ];
        // Each is said once, however often it is chosen.
        says.iter().for_each(|says| assert_eq!(log.matches(says).count(), 1, "version {version}: {log}"));
    }
}

#[test]
fn a_table_is_found_where_users_and_machines_keep_theirs() {
    let player = needed!(Player::new());
    player.file(".config/busbw/tuning.toml", TABLE.as_bytes());
    let other = player.file("xdg/busbw/tuning.toml", b"allreduce,0,65536,tree,simple,-1,-1,-1\n");
    assert_eq!(player.play(6, [16, 2, 2], &[]).choices[0], "1 0 3 131072");
    let folder = other.parent().unwrap().parent().unwrap().to_str().unwrap();
    assert_eq!(player.play(6, [16, 2, 2], &[("XDG_CONFIG_HOME", folder)]).choices[0], "0 2 0 131072");
}

#[test]
fn a_table_of_another_machine_changes_nothing_that_it_does_not_name() {
    let player = needed!(Player::new());
    let table = player.file("table.toml", TABLE.as_bytes());
    let Played { choices, log } = player.with_table(6, [32, 4, 4], &table);
    assert_eq!(choices[0], OWN[0]);
    assert!(log.contains("2 of 3 choices are for 32 ranks on 4 nodes"), "{log}");
}

#[test]
fn a_table_that_cannot_be_used_is_told_and_nothing_is_an_error() {
    let player = needed!(Player::new());
    let missing = player.home.path().join("none.toml");
    let damaged = player.file("damaged.toml", &TABLE.as_bytes()[..TABLE.len() - 30]);
    let binary = player.file("binary", &[0, 255, 254, 10, 0]);
    let unproven = player.file("unproven.toml", TABLE.replace("[3.1", "[-0.1").replace("[1.0", "[0.0").as_bytes());
    let pipe = player.home.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let cases = [
        (missing, "WARN TUNER/busbw : BUSBW_TUNING_TABLE="),
        (damaged, "line 25"),
        (binary, "line 1"),
        (pipe, "this is no file"),
        (player.home.path().to_owned(), "this is no file"),
        (unproven, "1 of 3 choices"),
    ];
    for (path, says) in cases {
        for version in VERSIONS {
            let Played { choices, log } = player.with_table(version, [16, 2, 2], &path);
            assert_eq!(choices, OWN, "version {version} of {}: {log}", path.display());
            assert_eq!(log.matches(says).count(), 1, "version {version} of {}: {log}", path.display());
        }
    }
}

/// With a tuner loaded, NCCL leaves out its own preference of NVLS for registered buffers (`ncclGetAlgoInfo`): the tuner has it.
#[test]
fn the_policy_of_efficiency_is_kept() {
    let player = needed!(Player::new());
    let policy = ("NCCL_CTA_POLICY", "1");
    let nvls = "4 2 0 131072";
    for (version, communicator, variables, expected) in [
        (6, [16, 2, 2], vec![policy], nvls),
        (4, [16, 2, 2], vec![policy], nvls),
        // Interface 3 does not tell whether buffers are registered.
        (3, [16, 2, 2], vec![policy], OWN[3]),
        (6, [16, 2, 1], vec![policy], OWN[3]),
        (6, [16, 2, 2], vec![policy, ("NCCL_PROTO", "LL,LL128,Simple")], OWN[3]),
        (6, [16, 2, 2], vec![("NCCL_CTA_POLICY", "2")], OWN[3]),
    ] {
        let choices = player.play(version, communicator, &variables).choices;
        assert_eq!(choices[3], expected, "version {version} {communicator:?} {variables:?}");
        assert_eq!((choices[0].as_str(), choices[4].as_str()), (OWN[0], OWN[4]));
    }
}
