//! A host's name says nothing: any other name gives the same answer.

use super::answer::Answer;
use super::changes;
use super::held::Held;
use super::inputs;

/// Kinds of names that hosts have: hexadecimal, digits, with dots, as clouds and pods are called.
type Kind = (&'static str, fn(u64) -> String);

const KINDS: [Kind; 5] = [
    ("hexadecimal", |number| format!("{:08x}", number.wrapping_mul(0x9e37_79b9) as u32)),
    ("digits", |number| format!("{}", 10_007 + 31 * number)),
    ("digits first", |number| format!("{number}dcf{:04x}", number * 0x0123 % 0xffff)),
    ("with dots", |number| format!("gpu{number}.rack-7.example.org")),
    ("an address", |number| format!("ip-10-0-{}-{}", number / 200, number % 200)),
];

#[test]
fn any_name_of_a_host_gives_the_same_answer() {
    let mut held = Held::new("any name of a host gives the same answer");
    for input in inputs::all() {
        let answer = Answer::to(&input);
        let mut hosts: Vec<String> = answer.run.nodes.iter().map(|node| node.host.to_string()).collect();
        hosts.retain(|host| host.len() > 2);
        for (kind, name) in KINDS.iter().filter(|_| !hosts.is_empty()) {
            let names: Vec<(String, String)> =
                hosts.iter().enumerate().map(|(at, host)| (host.clone(), name(at as u64 + 1))).collect();
            let renamed = Answer::to(&input.changed(|text| changes::renamed(text, &names)));
            held.compare((&input, &answer), &format!("hosts named in {kind}"), &renamed, Answer::agrees_with);
        }
    }
    held.end();
}
