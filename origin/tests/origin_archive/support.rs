//! A real origin that archives, and a reader of the archive.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use object_store::{ObjectStore, ObjectStoreExt};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::{Value, json};
use tempfile::TempDir;
use weir_origin::clock::now_ms;
use weir_stack::http::{self, Connection, Method};
use weir_stack::origin::{Origin, OriginOptions};
use weir_stack::redis::RedisServer;
use weir_stack::report::SilentReporter;
use weir_stack::{Secrets, ports, tools};

/// Time limit of a wait: other tests run at the same time.
const LIMIT: Duration = Duration::from_secs(90);

const SECRET: &str = "claim-secret-claim-secret-claim-secret";
pub const TOKEN: &str = "admin-token-admin-token-admin-token";

/// An origin with an archive.
pub struct World {
    pub origin: Origin,
    pub dir: TempDir,
    pub redis: RedisServer,
}

/// A row of the archive with its file.
#[derive(Clone, Debug)]
pub struct Archived {
    pub path: String,
    pub row: Row,
}

impl Archived {
    pub fn text(&self, name: &str) -> Option<String> {
        let mut columns = self.row.get_column_iter();
        let found = columns.find(|(column, _)| *column == name).unwrap();
        match found.1 {
            Field::Str(text) => Some(text.clone()),
            Field::Null => None,
            other => Some(other.to_string()),
        }
    }

    pub fn id(&self) -> String {
        self.text("id").unwrap()
    }
}

impl World {
    /// With these environment variables, and a type `view`.
    pub async fn new(place: &dyn Fn(&Path) -> String, variables: &[(&str, String)]) -> Self {
        Self::with_flags(place, variables, &[]).await
    }

    /// Like [`World::new`], with further flags.
    pub async fn with_flags(
        place: &dyn Fn(&Path) -> String,
        variables: &[(&str, String)],
        more: &[&str],
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tool = tools::Redis::find_or_get(&mut SilentReporter).unwrap();
        let (log, port) = (dir.path().join("redis.log"), ports::free().unwrap());
        let redis = RedisServer::start(&tool, port, dir.path(), &log)
            .await
            .unwrap();
        let flags = [
            (
                "--events-log",
                dir.path().join("events").display().to_string(),
            ),
            ("--events-archive", place(dir.path())),
            ("--events-archive-bytes", "60000".to_owned()),
            ("--events-archive-every", "1s".to_owned()),
        ];
        let options = OriginOptions {
            events_log: None,
            fitment: None,
            edge_secret: None,
            port: ports::free().unwrap(),
            admin_port: ports::free().unwrap(),
            database: dir.path().join("weir.db"),
            redis_url: redis.url(),
            redis_ca: None,
            key_prefix: "weir".to_owned(),
            risk_rules: None,
            links: None,
            provider_port: 9,
            flags: flags
                .into_iter()
                .flat_map(|(flag, value)| [flag.to_owned(), value])
                .chain(more.iter().map(|flag| (*flag).to_owned()))
                .collect(),
            secrets: Secrets {
                events: String::new(),
                room: String::new(),
                claim: SECRET.to_owned(),
                token: SECRET.to_owned(),
                payment: SECRET.to_owned(),
                admin_token: TOKEN.to_owned(),
            },
        };
        let binary = with_variables(dir.path(), variables);
        let log = dir.path().join("origin.log");
        let origin = Origin::start(&binary, options, &log).await.unwrap();
        let world = Self { origin, dir, redis };
        world
            .admin(Method::PUT, "/events/types/view", &json!({}))
            .await;
        world
            .admin(Method::PUT, "/events/types/cart", &json!({}))
            .await;
        world
    }

    pub async fn admin(&self, method: Method, path: &str, body: &Value) -> Value {
        let bearer = format!("Bearer {TOKEN}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
        ];
        let url = format!("{}{path}", self.origin.admin_url());
        let answer = http::send(method, &url, &headers, body.to_string()).await;
        answer.unwrap().json().unwrap()
    }

    /// Sends events to the admin port.
    pub async fn push(&self, events: Value) {
        let answer = self.admin(Method::POST, "/events", &events).await;
        assert_eq!(answer["rejected"], 0, "{answer}");
    }

    /// The status of the group.
    pub async fn group(&self) -> Value {
        self.admin(Method::GET, "/groups/archive", &Value::Null)
            .await
    }

    /// Waits until all records of the log are archived.
    pub async fn until_archived(&self) {
        until("archived", async || self.group().await["lag_bytes"] == 0).await;
    }
}

/// A script that runs the origin with these variables.
fn with_variables(dir: &Path, variables: &[(&str, String)]) -> PathBuf {
    let path = dir.join("origin.sh");
    let export = |(name, value): &(&str, String)| format!("export {name}='{value}'\n");
    let exports: String = variables.iter().map(export).collect();
    let binary = weir_stack::origin::ensure_built().unwrap();
    let binary = binary.display();
    let text = format!("#!/bin/sh\n{exports}exec '{binary}' \"$@\"\n");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

pub async fn until(subject: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so().await {
        assert!(Instant::now() < deadline, "never: {subject}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Sends batches until the origin stops answering; returns the acknowledged ids.
pub async fn send_until_killed(authority: String, n: u32) -> Vec<String> {
    let mut accepted = Vec::new();
    let received_ms = now_ms().to_string();
    let headers = [
        ("content-type", "application/json"),
        ("x-weir-event-key", "shop"),
        ("x-weir-event-kind", "server"),
        ("x-weir-received-ms", received_ms.as_str()),
        ("x-weir-consent", "full"),
    ];
    let Ok(mut http) = Connection::open(&authority).await else {
        return accepted;
    };
    for turn in 0.. {
        let event_type = if turn % 3 == 0 { "cart" } else { "view" };
        let event = |m: u32| json!({"id": format!("{n}-{turn}-{m}"), "type": event_type, "customer": format!("c{n}")});
        let body: Vec<Value> = (0..5).map(event).collect();
        let sent = http.send(Method::POST, "/events", &headers, json!(body).to_string());
        let Ok(answer) = sent.await else { break };
        assert_eq!(answer.status, 202, "{}", answer.text());
        for verdict in answer.json().unwrap()["verdicts"].as_array().unwrap() {
            assert_eq!(verdict["verdict"], "accepted");
            accepted.push(verdict["id"].as_str().unwrap().to_owned());
        }
    }
    accepted
}

/// All rows in a folder, as a reader of `*.parquet` sees them.
pub fn in_folder(folder: &Path) -> Vec<Archived> {
    let mut rows = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(one) = folders.pop() {
        for entry in std::fs::read_dir(&one).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "parquet") {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                rows.extend(read(&name, std::fs::read(&path).unwrap()));
            }
        }
    }
    rows
}

/// All rows in an object store.
pub async fn in_store(store: &dyn ObjectStore) -> Vec<Archived> {
    let mut rows = Vec::new();
    let mut folders = vec![None];
    while let Some(folder) = folders.pop() {
        let listed = store.list_with_delimiter(folder.as_ref()).await.unwrap();
        folders.extend(listed.common_prefixes.into_iter().map(Some));
        for object in listed.objects {
            let actual = store.get(&object.location).await.unwrap();
            let bytes = actual.bytes().await.unwrap();
            rows.extend(read(object.location.as_ref(), bytes.to_vec()));
        }
    }
    rows
}

fn read(path: &str, bytes: Vec<u8>) -> Vec<Archived> {
    let reader = SerializedFileReader::new(axum::body::Bytes::from(bytes)).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    let archived = |row: Result<Row, _>| Archived {
        path: path.to_owned(),
        row: row.unwrap(),
    };
    rows.map(archived).collect()
}
