//! A rank that does not react to signals, of what torchrun says while a job is ended from outside.

use busbw_diagnose::diagnose;
use busbw_ingest::read_bytes;
use busbw_model::CulpritClass;

const TOLD: &str = "W1124 16:46:49.826000 31553 site-packages/torch/distributed/elastic/agent/server/api.py:752] Received 15 death signal, \
                    shutting down workers\nW1124 16:46:49.827000 31553 site-packages/torch/distributed/elastic/multiprocessing/api.py:1028] \
                    Sending process 31567 closing signal SIGTERM\n";
const ENDED: &str = "Traceback (most recent call last):\n  File \"/bin/torchrun\", line 8, in <module>\n    sys.exit(main())\n\
                     torch.distributed.elastic.multiprocessing.api.SignalException: Process 31553 got signal: 15\n";

/// Who is named where some launchers of three hosts of one rank end.
fn stopped(ends: [bool; 3]) -> Option<Vec<u32>> {
    let log = |ends: bool| format!("[default0]:step 1\n[default0]:step 2\n{TOLD}{}", if ends { ENDED } else { "" });
    let texts: Vec<(String, String)> =
        ends.iter().enumerate().map(|(host, ends)| (format!("logs/h{host}.log"), log(*ends))).collect();
    let texts: Vec<(&str, &[u8])> = texts.iter().map(|(name, text)| (name.as_str(), text.as_bytes())).collect();
    let culprit = diagnose(&read_bytes(&texts).expect("readable")).culprit?;
    assert_eq!(culprit.class, Some(CulpritClass::Stopped));
    Some(culprit.ranks)
}

#[test]
fn a_launcher_that_does_not_end_has_a_rank_that_does_not_react() {
    assert_eq!(stopped([true, false, true]), Some(vec![1]));
    assert_eq!(stopped([false, true, true]), Some(vec![0]));
    // A job that was cancelled, and logs that were taken before any launcher had ended.
    assert_eq!(stopped([true; 3]), None);
    assert_eq!(stopped([false; 3]), None);
}
