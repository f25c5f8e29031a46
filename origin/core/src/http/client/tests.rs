use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::*;

/// What the service does with each request.
#[derive(Clone, Copy)]
enum Step {
    /// Reads a request and answers it.
    Answer,
    /// Reads a request and closes the connection.
    Drop,
}

/// Starts a service whose connections run these steps and then close. Returns the client and the received requests,
/// each with the number of its connection.
async fn service(
    connections: Vec<Vec<Step>>,
) -> (HttpClient, mpsc::UnboundedReceiver<(usize, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (received, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for (number, steps) in connections.into_iter().enumerate() {
            let (mut stream, _) = listener.accept().await.unwrap();
            let received = received.clone();
            tokio::spawn(async move {
                for step in steps {
                    let Some(request) = read(&mut stream).await else {
                        return;
                    };
                    received.send((number, request)).unwrap();
                    if matches!(step, Step::Answer) {
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                        stream.write_all(answer).await.unwrap();
                    }
                }
            });
        }
    });
    (HttpClient::new(&url, None).unwrap(), requests)
}

/// Reads a request with the body `x`.
async fn read(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\nx") {
        request.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(request).ok()
}

async fn post(client: &HttpClient) -> Result<StatusCode, ExchangeError> {
    let body = Bytes::from_static(b"x");
    let sent = client
        .send(Method::POST, client.path(), &[], body, 16)
        .await;
    // Let the connection's task return it to the pool.
    for _ in 0..32 {
        tokio::task::yield_now().await;
    }
    sent.map(|(status, _)| status)
}

#[tokio::test]
async fn two_requests_use_one_connection() {
    let (client, mut requests) = service(vec![vec![Step::Answer; 2], vec![]]).await;
    assert_eq!(post(&client).await, Ok(StatusCode::OK));
    assert_eq!(post(&client).await, Ok(StatusCode::OK));
    let (first, head) = requests.recv().await.unwrap();
    assert!(head.starts_with("POST /hook HTTP/1.1\r\n"), "{head}");
    assert_eq!((first, requests.recv().await.unwrap().0), (0, 0));
}

#[tokio::test]
async fn connection_closed_between_requests_is_replaced() {
    let (client, mut requests) = service(vec![vec![Step::Answer]; 2]).await;
    assert_eq!(post(&client).await, Ok(StatusCode::OK));
    wait_for_close().await;
    assert_eq!(post(&client).await, Ok(StatusCode::OK));
    let numbers = [
        requests.recv().await.unwrap().0,
        requests.recv().await.unwrap().0,
    ];
    assert_eq!(numbers, [0, 1]);
}

/// Waits until the service has closed the connection and this runtime, on the same thread, has noticed it.
async fn wait_for_close() {
    for _ in 0..3 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap());
        stream.await.unwrap();
        listener.accept().await.unwrap();
    }
}

#[tokio::test]
async fn post_is_not_repeated_when_its_connection_breaks() {
    let (client, mut requests) =
        service(vec![vec![Step::Answer, Step::Drop], vec![Step::Answer]]).await;
    assert_eq!(post(&client).await, Ok(StatusCode::OK));
    assert!(post(&client).await.is_err());
    assert_eq!(post(&client).await, Ok(StatusCode::OK));
    let mut numbers = Vec::new();
    while let Ok((number, _)) = requests.try_recv() {
        numbers.push(number);
    }
    assert_eq!(numbers, [0, 0, 1]);
}

#[tokio::test]
async fn redirect_is_not_followed_and_a_long_body_is_an_error() {
    let answers = [
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
            .to_owned(),
        format!(
            "HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n{}",
            "a".repeat(17)
        ),
    ];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            read(&mut stream).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let client = HttpClient::new(&url, None).unwrap();
    assert_eq!(post(&client).await, Ok(StatusCode::FOUND));
    wait_for_close().await;
    let too_long = post(&client).await.unwrap_err();
    assert!(too_long.0.contains("length limit exceeded"), "{too_long}");
}
