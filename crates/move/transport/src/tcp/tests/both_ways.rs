//! Two connections between the same two ranks, of which small messages share a socket.

use super::*;

/// One rank's ends.
struct Ends {
    send: SendComm,
    receive: RecvComm,
}

/// Both ranks' ends: of the one that lends its control socket, and of the one that returns by it.
fn ranks(net: &Net) -> (Ends, Ends) {
    let ((to_high, at_high), (to_low, at_low)) = (pair(net), pair(net));
    (Ends { send: to_high, receive: at_low }, Ends { send: to_low, receive: at_high })
}

fn share(low: &mut Ends, high: &mut Ends) {
    let (at_low, at_high) = (WayBack::default(), WayBack::default());
    low.send.lend(&at_low);
    low.receive.hear(at_low);
    high.receive.lend(&at_high);
    high.send.return_by(at_high);
}

#[test]
fn small_messages_of_both_directions_share_a_socket() {
    let net = net(config(0, 3));
    let (mut low, mut high) = ranks(&net);
    carry(&mut high.send, &mut low.receive, &[8, 0, 5000], 3);
    assert!(!low.receive.has_changed_over());
    share(&mut low, &mut high);
    for round in 0..100 {
        let sizes = [8, round * 700, 70_000 * (round % 3), 1];
        carry(&mut low.send, &mut high.receive, &sizes, round);
        carry(&mut high.send, &mut low.receive, &sizes, round);
    }
    carry(&mut high.send, &mut low.receive, &[8; 300], 0);
    carry(&mut low.send, &mut high.receive, &[8; 300], 0);
    assert!(low.receive.has_changed_over() && !high.receive.has_changed_over());
}

#[test]
fn the_last_message_still_arrives_and_then_the_end() {
    let net = net(config(0, 2));
    let (mut low, mut high) = ranks(&net);
    share(&mut low, &mut high);
    carry(&mut high.send, &mut low.receive, &[8], 0);
    let (message, mut room) = (content(1, 500), vec![0; 500]);
    // SAFETY: both live until their requests are done, and the last room until the connection is dropped.
    let request = unsafe {
        let sent = high.send.isend(message.as_ptr(), message.len(), 0).unwrap().unwrap();
        until(|| high.send.test(sent).unwrap());
        drop(high);
        low.receive.irecv(room.as_mut_ptr(), room.len(), 0).unwrap().unwrap()
    };
    until(|| low.receive.test(request).unwrap());
    assert!(room == message);
    // SAFETY: the room lives until the connection is dropped.
    let none = unsafe { low.receive.irecv(room.as_mut_ptr(), room.len(), 0) }.unwrap().unwrap();
    assert!(matches!(until(|| low.receive.test(none).err()), Error::Closed { .. }));
}
