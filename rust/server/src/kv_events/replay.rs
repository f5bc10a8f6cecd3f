//! Batches once more, for who has missed some: `[number]` asks for all that are
//! kept from that one on. Each comes as `[number, payload]`, and -1 without
//! payload ends the reply. An empty frame stands before both, as REQ sockets put it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;
use zeromq::{RouterSocket, SocketRecv, SocketSend, ZmqMessage};

use super::History;

/// After the last batch.
const END: [u8; 8] = (-1i64).to_be_bytes();
/// Longest wait for a reader to take a message; then it gets no more.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers one request after another.
pub(super) async fn serve(mut socket: RouterSocket, history: Arc<History>) {
    while let Ok(request) = socket.recv().await {
        let frames = request.into_vec();
        let [reader, _, number] = frames.as_slice() else {
            tracing::warn!("a replay of KV events was asked for with {} frames; it takes 3", frames.len());
            continue;
        };
        let Ok(number) = <[u8; 8]>::try_from(number.as_ref()) else {
            tracing::warn!("a replay of KV events was asked for without a number of 8 bytes");
            continue;
        };
        let from = u64::from_be_bytes(number);
        let kept: Vec<_> = history.lock().iter().filter(|(number, _)| *number >= from).cloned().collect();
        let numbered = kept.into_iter().map(|(number, payload)| (number.to_be_bytes(), payload));
        for (number, payload) in numbered.chain([(END, Bytes::new())]) {
            let mut reply = ZmqMessage::from(reader.clone());
            reply.push_back(Bytes::new());
            reply.push_back(Bytes::copy_from_slice(&number));
            reply.push_back(payload);
            if !matches!(timeout(PATIENCE, socket.send(reply)).await, Ok(Ok(()))) {
                break;
            }
        }
    }
}
