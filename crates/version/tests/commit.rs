//! A program's commit is that of its sources.

use std::process::Command;

fn head() -> Option<String> {
    let git = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .output()
        .ok()?;
    let head = String::from_utf8(git.stdout).ok()?;
    git.status.success().then_some(head)
}

#[test]
fn program_names_the_commit_of_its_sources() {
    let commit = weir_version::commit!();
    match (option_env!("WEIR_COMMIT"), head()) {
        (Some(named), _) if !named.is_empty() => assert_eq!(commit, named),
        (_, Some(head)) => assert_eq!(commit, &head[..weir_version::DIGITS]),
        (_, None) => assert_eq!(commit, "unknown"),
    }
    weir_version::set_commit(commit);
    weir_version::set_commit("a second one has no effect");
    let long = weir_version::long();
    for part in [weir_version::VERSION, commit, weir_version::COMPILER] {
        assert!(long.contains(part), "{long}");
    }
    assert!(weir_version::COMPILER.starts_with("rustc 1."), "{long}");
}
