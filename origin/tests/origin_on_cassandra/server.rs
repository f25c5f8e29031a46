//! The server, with the properties that tests of the cold store need.

use tokio::net::TcpStream;
use weir_stack::cassandra::CassandraServer;
use weir_stack::report::SilentReporter;
use weir_stack::tools::Cassandra;

#[tokio::test]
async fn cassandra_server_restarts_after_a_kill() {
    let temp = tempfile::tempdir().unwrap();
    let tool = Cassandra::find_or_get(&mut SilentReporter).unwrap();
    let log = temp.path().join("cassandra.log");
    let mut server = CassandraServer::start(&tool, temp.path(), &log)
        .await
        .unwrap();
    let address = server.address();
    server.process().kill();
    assert!(TcpStream::connect(&address).await.is_err());
    server.start_again().await.unwrap();
    assert!(TcpStream::connect(&address).await.is_ok());
}
