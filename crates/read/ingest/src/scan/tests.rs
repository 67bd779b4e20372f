/// A prefix that is known saves taking the line apart, whatever stands behind it.
#[test]
fn a_warning_behind_a_known_prefix_is_read_as_any_other() {
    let says = |text: &str| format!(" 3: n1:10:11 [2] {text}\n");
    let (warned, told) = (says("net.cc:1 NCCL WARN first"), says("NCCL INFO cudaDriverVersion 12020"));
    let read = |log: &str| {
        let run = crate::read_bytes(&[("log", log.as_bytes())]).expect("a log");
        let said = run.nccl.warnings.iter().filter(|warning| warning.message != "first");
        let warnings: Vec<_> = said.map(|said| format!("{:?} {:?} {}", said.who, said.site, said.message)).collect();
        (warnings, run.nccl.unknown_lines)
    };
    for text in [
        "net.cc:2 NCCL WARN plain",
        "net.cc:2 NCCL WARN plain [repeated 3x across cluster]",
        "net.cc:2 NCCL WARN torn n1:10:12 [3] net.cc:4 NCCL WARN text",
        "net.cc:2 NCCL WARN torn NCCL INFO Connected all rings",
        "net.cc:2:7 NCCL WARN with a column",
        "(connect) net.cc:2 NCCL WARN with a function",
        "net.cc:2  NCCL WARN two blanks",
        "net.cc:2\tNCCL WARN a tab",
        "NCCL WARN no place",
        "net NCCL WARN no number",
        "net.cc:2 NCCL ERROR another level",
    ] {
        let line = says(text);
        for before in [&warned, &told, &(told.clone() + &warned)] {
            assert_eq!(read(&(before.clone() + &line)), read(&line), "{text} behind {before}");
        }
    }
}
