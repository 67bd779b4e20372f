//! Tables of uneven exchanges: the even exchange of the same run is judged, and the time against what the skew explains.

use crate::UserFacts;
use crate::case::Test;
use crate::rules::skew::Skewed;
use busbw_model::{Collective, Judged, Judgement, Subject};
use busbw_predict::{Cluster, predict};

/// From this share of the predicted speed on an even exchange is sound.
const SOUND: f64 = 0.75;

/// Judges such a table; `None` for others.
pub(super) fn judged(test: &Test, given: &UserFacts) -> Option<Judged> {
    let skewed = Skewed::of(test)?;
    let ranks = test.table.nranks.map_or(String::new(), |ranks| format!(" on {ranks} ranks"));
    let what = format!("{} with {}{ranks}", Collective::AllToAllV, skewed.load());
    let how = format!("{:.0}% of the bound that its skew sets", 100.0 * skewed.share);
    let (outcome, how, question) = if skewed.is_slower() {
        (Judgement::Failed, how, None)
    } else {
        match given.cluster.and_then(|cluster| of_predicted(test, &skewed, cluster)) {
            Some(share) if share >= SOUND => (
                Judgement::Passed,
                format!("{how}; the even exchange reaches {:.0}% of its prediction", 100.0 * share),
                None,
            ),
            Some(share) => {
                let even = format!("the even exchange of the same run reaches {:.0}% of its prediction", 100.0 * share);
                let question =
                    format!("{what}: {even}. Is the network at fault? Measure `busbw bench alltoall` and explain that");
                (Judgement::Undecided, format!("{how}; {even}"), Some(question))
            }
            None => {
                let question = format!(
                    "{what}: {}. {how}. Whether the even exchange is as fast as it should be is open: describe the machines with --cluster",
                    skewed.busiest()
                );
                (Judgement::Undecided, how, Some(question))
            }
        }
    };
    Some(Judged { subject: Subject::Speed, what, how, speed: None, outcome, question })
}

/// What the even exchange reaches of its prediction for a cluster of as many ranks.
fn of_predicted(test: &Test, skewed: &Skewed, cluster: &Cluster) -> Option<f64> {
    let is_it = test.table.nranks == u32::try_from(cluster.ranks()).ok() && !test.on_cores();
    let rows = predict(cluster, Collective::AllToAll, &[skewed.row.size]).rows;
    Some(rows.first().filter(|_| is_it)?.time.0 / skewed.skew.even.0)
}
