//! What a task will do, and about how long each step takes on two cores with nothing compiled.

/// One step of a task.
pub(crate) struct Step {
    pub(crate) what: &'static str,
    pub(crate) how_long: &'static str,
}

pub(crate) const BUILD_WASM: Step = Step {
    what: "compile the filters to WebAssembly",
    how_long: "45 s",
};

pub(crate) const GET_TOOLS: Step = Step {
    what: "find or download Envoy and Redis",
    how_long: "10 s",
};

pub(crate) const BUILD_WORKER: Step = Step {
    what: "compile the edge for Cloudflare, and get workerd by npm",
    how_long: "2 min",
};

/// A program of ours with all that it depends on.
const COMPILE: &str = "2 min";

pub(crate) fn text(task: &str, program: &str, steps: &[Step]) -> String {
    let mut text = format!(
        "cargo xtask {task}, the first time. On two cores it takes about:\n  \
         {COMPILE:>6}  compile {program} and the origin\n"
    );
    for Step { what, how_long } in steps {
        text += &format!("  {how_long:>6}  {what}\n");
    }
    text + "Later runs compile only what has changed.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_a_line_with_its_time() {
        let text = text("up", "weir-tasks", &[GET_TOOLS, BUILD_WASM]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[1].contains(COMPILE) && lines[1].contains("weir-tasks"));
        assert!(lines[3].contains(BUILD_WASM.how_long) && lines[3].contains("WebAssembly"));
    }
}
