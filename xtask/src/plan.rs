//! What a task will do. No times: each machine has its own.

/// One step of a task.
pub(crate) struct Step(pub(crate) &'static str);

pub(crate) const BUILD_WASM: Step = Step("compile the filters to WebAssembly, and the origin");

pub(crate) const GET_TOOLS: Step =
    Step("find Envoy and Redis, or unpack them into target/weir/tools");

pub(crate) const BUILD_WORKER: Step = Step("compile the Cloudflare edge, and get workerd with npm");

pub(crate) fn text(task: &str, program: &str, steps: &[Step]) -> String {
    let mut text = format!("cargo xtask {task}, the first time:\n  1. compile {program}\n");
    for (number, Step(subject)) in (2..).zip(steps) {
        text += &format!("  {number}. {subject}\n");
    }
    text + "Later runs compile only changes.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_a_line_with_its_number() {
        let text = text("up", "weir-tasks", &[GET_TOOLS, BUILD_WASM]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[1].contains("weir-tasks"), "{text}");
        assert!(lines[3].starts_with("  3. ") && lines[3].contains("WebAssembly"));
    }
}
