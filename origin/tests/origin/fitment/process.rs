//! Imports by real processes: `weir-origin import`, and origins that are killed.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weir_origin::fitment::Settings;
use weir_origin::fitment::store::{FitmentStore, Import, State};
use weir_origin::origin::open_database;

use crate::support;

struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("spool")).unwrap();
        Self { dir }
    }

    fn database_url(&self) -> String {
        format!("sqlite://{}/weir.db", self.dir.path().display())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(support::binary());
        command
            .env_clear()
            .args(["--database-url", &self.database_url(), "--fitment"])
            .arg(self.dir.path().join("spool"))
            .arg("import")
            .args(arguments)
            .current_dir(self.dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Imports a file; returns exit code, stdout and stderr.
    fn import(&self, kind: &str, text: &str) -> (Option<i32>, String, String) {
        std::fs::write(self.dir.path().join("file"), text).unwrap();
        let output = self.command(&["file", "--kind", kind]).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    }

    async fn store(&self) -> FitmentStore {
        let database = open_database(&self.database_url()).await.unwrap();
        FitmentStore::new(database, Settings::new(self.dir.path().into()).clock)
    }
}

fn vehicles(count: u32) -> String {
    let lines = (1..=count).map(|n| format!("{}\n", 1_000_000 + n));
    std::iter::once("vehicle\n".to_owned())
        .chain(lines)
        .collect()
}

fn products(count: u32) -> String {
    let lines = (1..=count).map(|n| format!("S{n},P{},tyre,m\n", n / 10));
    std::iter::once("sku,spu,type,merchant\n".to_owned())
        .chain(lines)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn file_is_imported_from_the_command_line() {
    let files = Files::new();
    let (code, out, response) = files.import("vehicles", &vehicles(100));
    assert_eq!(
        (code, out.trim()),
        (Some(0), "100 vehicles imported"),
        "{response}"
    );
    assert_eq!(files.import("products", &products(3)).0, Some(0));
    let (code, _, response) =
        files.import("relations", "sku,vehicle\nS1,1000001\nS1,7x\nS9,1000001\n");
    assert_eq!(code, Some(1));
    assert!(
        response.contains("line 3: vehicle: must be 1 to 7 digits"),
        "{response}"
    );
    assert!(
        response.contains("line 4: sku: S9 is unknown"),
        "{response}"
    );
    let (code, out, response) = files.import("relations", "sku,vehicle\nS1,1000001\n");
    assert_eq!(
        (code, out.trim()),
        (Some(0), "1 relations imported"),
        "{response}"
    );
    let none = files
        .command(&["file", "--kind", "colours"])
        .output()
        .unwrap();
    assert!(
        String::from_utf8(none.stderr)
            .unwrap()
            .contains("kind: must be one of")
    );
}

async fn import(store: &FitmentStore) -> Option<Import> {
    store
        .import_jobs()
        .imports(u64::MAX, 1)
        .await
        .unwrap()
        .into_iter()
        .next()
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Repeatedly kills the importing process at random times. In the end everything is applied once, and nothing before
/// that.
#[tokio::test(flavor = "multi_thread")]
async fn import_survives_kill_9() {
    const SKUS: u32 = 300;
    const EACH: u32 = 400;
    let files = Files::new();
    assert_eq!(files.import("vehicles", &vehicles(2_000)).0, Some(0));
    assert_eq!(files.import("products", &products(SKUS)).0, Some(0));
    let store = files.store().await;
    let mut text = String::from("sku,vehicle\n");
    for sku in 1..=SKUS {
        for n in 0..EACH {
            text += &format!("S{sku},{}\n", 1_000_001 + (sku * 7 + n * 5) % 2_000);
        }
    }
    std::fs::write(files.dir.path().join("file"), &text).unwrap();
    let child = files
        .command(&["file", "--kind", "relations"])
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let id = loop {
        match import(&store).await {
            Some(import) if import.kind == "relations" => break import.id,
            _ => assert!(Instant::now() < deadline, "no import"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    kill(child);
    let mut kills = 1;
    for pause_ms in (0..).map(|n| 30 + 40 * n) {
        let before = store.import_jobs().import(id).await.unwrap().unwrap();
        if before.state.is_end() {
            break;
        }
        assert_eq!(fits(&store).await, 0, "half of it is applied: {before:?}");
        // A killed process counts as dead after its lease; the test shortens the wait.
        let child = files
            .command(&["--resume", &id.to_string()])
            .spawn()
            .unwrap();
        expire(files.dir.path()).await;
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        kill(child);
        kills += 1;
        assert!(
            Instant::now() < deadline + Duration::from_secs(60),
            "{before:?}"
        );
    }
    let import = store.import_jobs().import(id).await.unwrap().unwrap();
    assert_eq!(
        (import.state, import.progress.records),
        (State::Done, u64::from(SKUS * EACH))
    );
    assert_eq!(fits(&store).await, u64::from(SKUS));
    println!("killed {kills} times");
    let first = store
        .by_vehicle()
        .fits_vehicle(weir_fitment::Offset::new(9).unwrap(), 0)
        .await
        .unwrap();
    let expected = (1..=SKUS).filter(|sku| (0..EACH).any(|n| (sku * 7 + n * 5) % 2_000 == 8));
    let expected: Vec<String> = expected.take(50).map(|sku| format!("S{sku}")).collect();
    assert_eq!(
        first
            .0
            .iter()
            .map(|sku| sku.as_str().to_owned())
            .collect::<Vec<_>>(),
        expected
    );
}

/// Number of SKUs in SQL with known fitment.
async fn fits(store: &FitmentStore) -> u64 {
    let mut count = 0;
    for dirty in store.changes().dirty(0, 10_000).await.unwrap() {
        count += u64::from(format!("{dirty:?}").contains("fits: Some"));
    }
    count
}

async fn expire(dir: &Path) {
    use sqlx::Connection;
    let url = format!("sqlite://{}/weir.db", dir.display());
    let mut sql = sqlx::sqlite::SqliteConnection::connect(&url).await.unwrap();
    let update = sqlx::query("UPDATE fitment_imports SET lease_until_ms = 0");
    // The database may be busy with the import; then a live process holds it.
    let _ = update.execute(&mut sql).await;
}
