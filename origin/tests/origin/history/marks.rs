//! Checkpoints detect losses in Redis, and SQL stores where to resume.

use tokio_util::sync::CancellationToken;
use weir_history::DAY_MS;
use weir_origin::history::marks::Rebuild;

use super::Clock;
use crate::support::World;

#[tokio::test]
async fn checkpoint_moves_only_by_its_owner_and_is_the_restart_point() {
    let clock = Clock::at_noon();
    let world = World::new().await;
    let history = world.history(|settings| clock.set(settings)).await;
    let stop = CancellationToken::new();
    history.fold(&stop).await.unwrap();
    assert_eq!(history.mark("log").await.unwrap(), None);
    assert!(!history.advance_mark("log", 0, 10).await.unwrap());
    history.set_mark("log", 0).await.unwrap();
    assert!(history.advance_mark("log", 0, 10).await.unwrap());
    // The reply was lost, so the call is repeated, also by another process.
    assert!(history.advance_mark("log", 0, 10).await.unwrap());
    let other = world.history(|settings| clock.set(settings)).await;
    assert!(other.advance_mark("log", 10, 50).await.unwrap());
    assert!(!history.advance_mark("log", 51, 60).await.unwrap());
    assert_eq!(history.mark("log").await.unwrap(), Some(50));

    // Earlier views are in the cold store.
    let today = clock.now_ms() / DAY_MS;
    let rebuild = async || history.rebuild_from("log", 50).await.unwrap();
    assert_eq!(rebuild().await, Rebuild::Position(0));
    clock.pass(DAY_MS);
    assert!(history.advance_mark("log", 50, 60).await.unwrap());
    let rebuild = async || history.rebuild_from("log", 60).await.unwrap();
    // Yesterday is not in the cold store yet; then it is.
    assert_eq!(rebuild().await, Rebuild::Position(0));
    history.fold(&stop).await.unwrap();
    assert_eq!(rebuild().await, Rebuild::Position(50));
    // Views replayed today count as today's.
    assert!(history.advance_mark("log", 20, 60).await.unwrap());
    assert_eq!(rebuild().await, Rebuild::Position(20));
    // A day without views has no start.
    clock.pass(DAY_MS);
    history.fold(&stop).await.unwrap();
    assert_eq!(rebuild().await, Rebuild::Position(60));
    let other = history.rebuild_from("another", 7).await.unwrap();
    assert_eq!(other, Rebuild::Time((today + 1) * DAY_MS));
}

/// Each node of a cluster can lose its data independently.
#[tokio::test]
async fn node_that_lost_its_marks_is_detected() {
    let world = World::new().await;
    let history = world.history(|_| ()).await;
    for url in world.redis_url.split(',') {
        history.set_mark("log", 50).await.unwrap();
        assert!(history.advance_mark("log", 50, 60).await.unwrap());
        let mut node = weir_stack::redis::connect(url).await.unwrap();
        let mut keys = redis::cmd("KEYS");
        let keys = keys.arg(format!("{}:h:mark:*", world.prefix));
        let keys: Vec<String> = keys.query_async(&mut node).await.unwrap();
        assert!(!keys.is_empty(), "{url} has no mark");
        for key in keys {
            let mut lose = redis::cmd("DEL");
            let () = lose.arg(key).query_async(&mut node).await.unwrap();
        }
        assert_eq!(history.mark("log").await.unwrap(), None);
        assert!(!history.advance_mark("log", 60, 70).await.unwrap());
    }
}
