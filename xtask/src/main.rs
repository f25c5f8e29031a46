//! `cargo xtask <task>`: says what the task will do, builds the program that does it, and becomes that program.
//!
//! On a machine with nothing compiled that takes minutes, so this crate has no dependencies and speaks first. A new
//! task is one more entry in [`TASKS`].

#![allow(clippy::indexing_slicing)]

mod plan;
mod program;

use plan::{BUILD_WASM, BUILD_WORKER, GET_TOOLS, Step};
use program::Program;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

/// What does most tasks. It compiles the origin itself, beside the filters: together they keep both cores busy.
const DEV: Program = Program {
    binary: "weir-tasks",
    beside: &[],
    takes_task: true,
};

/// The benchmarks, with what only they need.
const BENCH: Program = Program {
    binary: "weir-bench",
    beside: &["weir-origin"],
    takes_task: false,
};

/// Sales, limits and links on a virtual clock. It needs nothing beside it.
const SIMULATION: Program = Program {
    binary: "weir-simulation",
    beside: &[],
    takes_task: false,
};

/// The same requests on every host.
const CONFORMANCE: Program = Program {
    binary: "weir-conformance",
    beside: &[],
    takes_task: false,
};

/// The whole stack for a long time.
const SOAK: Program = Program {
    binary: "weir-soak",
    beside: &["weir-origin"],
    takes_task: false,
};

/// What is shipped.
const DIST: Program = Program {
    binary: "weir-dist",
    beside: &[],
    takes_task: false,
};

struct Task {
    name: &'static str,
    about: &'static str,
    program: &'static Program,
    /// What follows when the program is compiled.
    steps: &'static [Step],
}

const TASKS: &[Task] = &[
    Task {
        name: "setup",
        about: "Find or download the wasm toolchain, Envoy, Redis and Chromium",
        program: &DEV,
        steps: &[GET_TOOLS],
    },
    Task {
        name: "build-wasm",
        about: "Build all filters into target/weir/*.wasm and print their sizes",
        program: &DEV,
        steps: &[Step("compile the filters to WebAssembly")],
    },
    Task {
        name: "build-edge",
        about: "Build the edges into target/weir/edge and print their sizes",
        program: &DEV,
        steps: &[Step("compile the edges for their targets")],
    },
    Task {
        name: "book",
        about: "Build the documentation as HTML in target/weir/book",
        program: &DEV,
        steps: &[],
    },
    Task {
        name: "prose",
        about: "Check documents, help texts and texts of pages with Vale, by the rules in docs/.vale",
        program: &DEV,
        steps: &[
            Step("find Vale, or build it with Go into target/weir/tools"),
            Step("compile the origin"),
            Step("check the texts"),
        ],
    },
    Task {
        name: "policy",
        about: "Check workflows with actionlint, and dependencies with cargo-deny",
        program: &DEV,
        steps: &[
            Step("find actionlint and cargo-deny, or build them into target/weir/tools"),
            Step("check workflows, licenses, sources and advisories"),
        ],
    },
    Task {
        name: "up",
        about: "Run Redis, the origin and Envoy with the filters until Ctrl-C",
        program: &DEV,
        steps: &[BUILD_WASM, GET_TOOLS],
    },
    Task {
        name: "demo",
        about: "Run a demo flash sale with 20,000 people and bots, and check the result",
        program: &DEV,
        steps: &[
            BUILD_WASM,
            GET_TOOLS,
            Step("run the sale and check the result"),
        ],
    },
    Task {
        name: "demo fitment",
        about: "Import 50 million relations of parts and vehicles, send 100,000 queries, and check each answer",
        program: &DEV,
        steps: &[
            BUILD_WASM,
            GET_TOOLS,
            Step("import the catalogue, send queries and compare"),
        ],
    },
    Task {
        name: "demo edge",
        about: "Run the sale with half of its buyers at an edge in workerd, and check the result",
        program: &DEV,
        steps: &[
            BUILD_WASM,
            GET_TOOLS,
            BUILD_WORKER,
            Step("run the sale and check the result"),
        ],
    },
    Task {
        name: "bench",
        about: "Compare Weir with its alternatives",
        program: &BENCH,
        steps: &[
            GET_TOOLS,
            BUILD_WASM,
            Step("measure (--quick: fewer rounds)"),
        ],
    },
    Task {
        name: "test",
        about: "Build everything and run the tests: the first tier (--all: both tiers)",
        program: &DEV,
        steps: &[
            GET_TOOLS,
            BUILD_WASM,
            Step("compile the tests"),
            Step("run them"),
        ],
    },
    Task {
        name: "dist",
        about: "Build a release in target/dist (--check: and test it)",
        program: &DIST,
        steps: &[
            BUILD_WASM,
            Step("compile the origin as one static binary, and the native module"),
        ],
    },
    Task {
        name: "simulate",
        about: "Run random fault schedules on a virtual clock (--schedules N, --seed S)",
        program: &SIMULATION,
        steps: &[Step("run 2,000 schedules each of sales, limits and links")],
    },
    Task {
        name: "conformance",
        about: "Replay the conformance vectors on every host, and compare byte for byte (--host NAME)",
        program: &CONFORMANCE,
        steps: &[GET_TOOLS, BUILD_WASM, Step("replay them on each host")],
    },
    Task {
        name: "soak",
        about: "Run everything at half of its capacity, with a fault per minute (--minutes N)",
        program: &SOAK,
        steps: &[GET_TOOLS, BUILD_WASM, Step("run (--minutes N)")],
    },
    Task {
        name: "mutants",
        about: "Mutation tests: change the decision crates, and list changes that no test detects (-p CRATE)",
        program: &DEV,
        steps: &[Step("change and test everything")],
    },
];

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let Some(place) = place_of_task(&arguments) else {
        return usage(&arguments);
    };
    let Some(task) = task_of(&arguments[place..]) else {
        eprintln!("error: unknown task {:?}\n", arguments[place]);
        eprint!("{}", help());
        return ExitCode::FAILURE;
    };
    if !task.program.is_built() {
        eprintln!("{}", plan::text(task.name, task.program.binary, task.steps));
    }
    match task.program.run(arguments, place) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The task that these words begin with: of two, the one with the longer name.
fn task_of(words: &[OsString]) -> Option<&'static Task> {
    let is_named = |task: &&Task| {
        let name: Vec<&str> = task.name.split(' ').collect();
        words.len() >= name.len() && name.iter().zip(words).all(|(one, word)| word == *one)
    };
    TASKS
        .iter()
        .filter(is_named)
        .max_by_key(|task| task.name.len())
}

/// Where the task's name is: `--envoy PATH`, which all tasks take, may stand in front of it.
fn place_of_task(arguments: &[OsString]) -> Option<usize> {
    let mut place = 0;
    loop {
        let argument = arguments.get(place)?.to_str().unwrap_or_default();
        place += match argument {
            "--envoy" => 2,
            _ if argument.starts_with("--envoy=") => 1,
            _ if argument.starts_with('-') => return None,
            _ => return Some(place),
        };
    }
}

/// No task: that is right if help was asked for.
fn usage(arguments: &[OsString]) -> ExitCode {
    let is_help = |argument: &OsString| ["-h", "--help"].map(OsStr::new).contains(&&**argument);
    if arguments.iter().any(is_help) {
        print!("{}", help());
        return ExitCode::SUCCESS;
    }
    eprint!("{}", help());
    ExitCode::FAILURE
}

fn help() -> String {
    let mut help = "Weir's development tasks. Each task gets the tools it needs; `setup` gets them in advance.\n\n\
        Usage: cargo xtask [--envoy PATH] <TASK> [OPTIONS]\n\n"
        .to_owned();
    for task in TASKS {
        help += &format!("  {:<12} {}\n", task.name, task.about);
    }
    help += "\n`cargo xtask <TASK> --help` prints a task's options; it compiles the task first.\n";
    help
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task_in(line: &str) -> Option<usize> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        place_of_task(&words)
    }

    #[test]
    fn task_is_accepted_after_the_envoy_path() {
        assert_eq!(task_in("demo --once"), Some(0));
        assert_eq!(task_in("--envoy /x demo"), Some(2));
        assert_eq!(task_in("--envoy=/x up --help"), Some(1));
        assert_eq!(task_in("--help"), None);
        assert_eq!(task_in("--envoy"), None);
        assert_eq!(task_in(""), None);
    }

    #[test]
    fn task_name_can_have_two_words() {
        let of = |line: &str| {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            task_of(&words).map(|task| task.name)
        };
        assert_eq!(of("demo --once"), Some("demo"));
        assert_eq!(of("demo fitment --once"), Some("demo fitment"));
        assert_eq!((of("demonstrate"), of("fitment")), (None, None));
    }

    #[test]
    fn help_names_every_task() {
        let help = help();
        for task in TASKS {
            assert!(help.contains(task.name) && help.contains(task.about));
        }
    }
}
