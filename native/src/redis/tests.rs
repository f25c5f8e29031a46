use super::*;

use std::collections::VecDeque;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::LocalSet;

const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n";

/// A server's reaction on one connection.
#[derive(Clone, Copy, Debug)]
enum ServerAction {
    /// Writes this to each call.
    Say(&'static [u8]),
    /// Writes this to `ROLE`, and `+OK` to other calls.
    Role(&'static [u8]),
    /// Writes nothing.
    Silence,
    /// Closes the connection at the first call.
    Close,
    /// Writes this to the first call, and closes the connection.
    SayAndClose(&'static [u8]),
}

/// Starts a server that follows one of `acts` on each successive connection.
async fn server(acts: &[ServerAction]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut acts: VecDeque<ServerAction> = acts.iter().copied().collect();
    tokio::task::spawn_local(async move {
        while let Some(act) = acts.pop_front() {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::task::spawn_local(async move {
                let mut buffer = [0; 1024];
                while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {
                    match act {
                        ServerAction::Say(reply) => stream.write_all(reply).await.unwrap(),
                        ServerAction::Role(role) => {
                            let is_role = buffer.starts_with(b"*1\r\n$4\r\nROLE\r\n");
                            let reply = if is_role { role } else { b"+OK\r\n" };
                            stream.write_all(reply).await.unwrap();
                        }
                        ServerAction::SayAndClose(reply) => {
                            return stream.write_all(reply).await.unwrap();
                        }
                        ServerAction::Silence => {}
                        ServerAction::Close => return,
                    }
                }
            });
        }
    });
    address
}

fn client(address: SocketAddr) -> Client {
    let json = format!(r#"{{"name":"r","addresses":["{address}"]}}"#);
    let settings = serde_json::from_str(&json).unwrap();
    Client::new(&Plan::new("p", &settings).unwrap())
}

async fn ask(client: &Client, commands: &[u8]) -> Reply {
    client
        .call(commands, Instant::now() + Duration::from_millis(100))
        .await
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    LocalSet::new().block_on(&runtime.unwrap(), test);
}

fn unknown(why: UnknownFailure) -> Reply {
    Err(why.into())
}

#[test]
fn replies_keep_their_order_and_the_connection_is_reused() {
    run(async {
        let client = client(server(&[ServerAction::Say(b"$1\r\nx\r\n")]).await);
        for _ in 0..3 {
            assert_eq!(ask(&client, GET).await.unwrap(), b"$1\r\nx\r\n");
        }
    });
}

#[test]
fn silent_connection_is_dropped_and_its_call_is_unknown() {
    run(async {
        let client = client(server(&[ServerAction::Silence, ServerAction::Say(b"+OK\r\n")]).await);
        assert_eq!(ask(&client, GET).await, unknown(UnknownFailure::Timeout));
        assert_eq!(ask(&client, GET).await.unwrap(), b"+OK\r\n");
    });
}

#[test]
fn call_on_a_broken_connection_is_unknown() {
    run(async {
        let client = client(server(&[ServerAction::Close, ServerAction::Say(b"+OK\r\n")]).await);
        assert_eq!(ask(&client, GET).await, unknown(UnknownFailure::Lost));
        assert_eq!(ask(&client, GET).await.unwrap(), b"+OK\r\n");
    });
}

#[test]
fn idle_connection_closed_by_the_server_is_not_reused() {
    run(async {
        let acts = [
            ServerAction::SayAndClose(b"+OK\r\n"),
            ServerAction::Say(b"+NEW\r\n"),
        ];
        let client = client(server(&acts).await);
        assert_eq!(ask(&client, GET).await.unwrap(), b"+OK\r\n");
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(ask(&client, GET).await.unwrap(), b"+NEW\r\n");
    });
}

#[test]
fn failed_connection_means_that_no_command_ran() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let reply = ask(&client(address), GET).await;
        assert!(matches!(reply, Err(Failure::Definite(_))), "{reply:?}");
        let reply = ask(&client(address), b"GET a").await;
        assert!(
            matches!(reply, Err(Failure::Definite(_))),
            "no whole command: {reply:?}"
        );
    });
}

#[test]
fn invalid_or_surplus_replies_make_the_call_unknown() {
    run(async {
        for reply in [b"+OK\r\n+OK\r\n".as_slice(), b"hello\r\n"] {
            let client = client(server(&[ServerAction::Say(reply)]).await);
            assert_eq!(ask(&client, GET).await, unknown(UnknownFailure::Garbled));
        }
    });
}

#[test]
fn server_error_closes_its_connection() {
    run(async {
        let acts = [
            ServerAction::Say(b"-READONLY a replica\r\n"),
            ServerAction::Say(b"-NOSCRIPT\r\n"),
        ];
        let client = client(server(&acts).await);
        assert!(ask(&client, GET).await.unwrap().starts_with(b"-READONLY"));
        for _ in 0..2 {
            assert!(ask(&client, GET).await.unwrap().starts_with(b"-NOSCRIPT"));
        }
    });
}

#[test]
fn replicated_set_is_called_at_its_primary_after_a_failover() {
    const PRIMARY: &[u8] =
        b"*3\r\n$6\r\nmaster\r\n:7\r\n*1\r\n*3\r\n$9\r\n127.0.0.1\r\n$1\r\n1\r\n$1\r\n7\r\n";
    const RETURNED: &[u8] = b"*3\r\n$6\r\nmaster\r\n:7\r\n*0\r\n";
    const REPLICA: &[u8] =
        b"*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:1\r\n$9\r\nconnected\r\n:7\r\n";
    run(async {
        let first = server(&[ServerAction::Role(REPLICA), ServerAction::Role(PRIMARY)]).await;
        let second = server(&[ServerAction::Role(RETURNED)]).await;
        let third = server(&[ServerAction::SayAndClose(PRIMARY)]).await;
        let json = format!(
            r#"{{"name":"r","kind":"replicated","addresses":["{first}","{second}","{third}"]}}"#
        );
        let settings = serde_json::from_str(&json).unwrap();
        let client = Client::new(&Plan::new("p", &settings).unwrap());
        // The third is the primary, and dies at the call.
        assert_eq!(ask(&client, GET).await, unknown(UnknownFailure::Lost));
        assert_eq!(
            ask(&client, GET).await.unwrap(),
            b"+OK\r\n",
            "the first took over"
        );
    });
}

#[test]
fn wrong_password_is_refused_before_any_command_runs() {
    run(async {
        let address = server(&[ServerAction::Say(b"-WRONGPASS no\r\n")]).await;
        let json =
            format!(r#"{{"name":"r","addresses":["{address}"],"password":{{"env":"PATH"}}}}"#);
        let settings = serde_json::from_str(&json).unwrap();
        let client = Client::new(&Plan::new("p", &settings).unwrap());
        let reply = ask(&client, GET).await;
        let login = DefiniteFailure::Login("WRONGPASS no".into());
        assert_eq!(reply, Err(login.into()));
    });
}
