//! A check as text and JSON.

use crate::common;

use busbw_model::{Area, CheckItem, Checked, Code, OddOne, Outcome};
use busbw_report::text::Style;
use busbw_report::{json, text};
use common::schema_errors;

const SCHEMA: &str = include_str!("../../../../../docs/schema/check-1.schema.json");

fn item(area: Area, item: &'static str, host: &str, device: &str, detail: &str) -> CheckItem {
    let device = Some(device).filter(|device| !device.is_empty()).map(str::to_owned);
    CheckItem::ok(area, item, host, device, detail.into())
}

/// Six hosts with two ports each: on one a port is down, and one did not answer.
fn checked() -> Checked {
    let hosts: Vec<String> = (1..=6).map(|host| format!("h{host}")).collect();
    let mut items = Vec::new();
    for host in &hosts[..5] {
        for port in ["mlx5_0/1", "mlx5_1/1"] {
            let is_down = host == "h3" && port == "mlx5_1/1";
            let remedy = format!("See the cable of {port}: `sudo mlxlink -d {port}\u{1b}[2J`");
            let port = item(Area::Rdma, "port state", host, port, if is_down { "DOWN" } else { "ACTIVE, LinkUp" });
            let code = Some(Code::IbTransportError);
            let down = CheckItem { outcome: Outcome::Fail, remedy: Some(remedy), code, ..port.clone() };
            items.push(if is_down { down } else { port });
        }
        items.push(item(Area::Limits, "memlock", host, "", "unlimited"));
        let acs = item(Area::Pcie, "ACS", host, "", "");
        items.push(CheckItem { outcome: Outcome::Skip, why: Some("root only".into()), ..acs });
    }
    let remedy = Some("Check passwordless ssh: `ssh h6 true`".into());
    let hello = item(Area::Mpi, "hello", "h6", "", "no answer within 60 s");
    items.push(CheckItem { outcome: Outcome::Fail, remedy, ..hello });
    let differ = vec![("h2".into(), "1500".into()), ("h4".into(), "1500".into()), ("h5".into(), "1400".into())];
    let odd = OddOne {
        area: Area::Net,
        item: "MTU of eth0".into(),
        majority: Some("9000".into()),
        differ,
        remedy: "Give the interface one MTU".into(),
        fails: false,
        code: Some(Code::NetUnreachable),
    };
    Checked { hosts, items, odd_ones: vec![odd] }
}

#[test]
fn a_check_as_text() {
    insta::assert_snapshot!(text::check(&checked(), &Style { color: false, width: 80, ..Style::default() }));
}

#[test]
fn colour_is_written_only_when_asked_for() {
    assert!(!text::check(&checked(), &Style { color: false, width: 100, ..Style::default() }).contains('\u{1b}'));
    assert!(
        text::check(&checked(), &Style { color: true, width: 100, ..Style::default() })
            .contains("\u{1b}[1m\u{1b}[31mfail")
    );
}

#[test]
fn a_check_as_json() {
    for checked in [checked(), Checked::default()] {
        let mut out = Vec::new();
        json::write_check(&checked, &mut out).unwrap();
        let document = String::from_utf8(out).unwrap();
        assert_eq!(schema_errors(SCHEMA, &document), Vec::<String>::new());
    }
}
