//! A limiter in a Proxy-Wasm host, with a virtual clock and two workers.

use weir_host_test::{Builder, Host, RequestBuilder, Stream, StreamState, Upstream};

/// The start time of the host's clock.
pub const NOW_MS: u64 = 1_700_000_000_000;

pub const DEBUG_SECRET: &str = "0123456789abcdef";

pub struct Limiter {
    pub host: Host,
}

pub fn host(config: &str) -> Builder {
    host_of("ratelimit", config)
}

fn host_of(module: &str, config: &str) -> Builder {
    Host::builder()
        .module_file(weir_stack::wasm::filter(module).unwrap())
        .vm_id("weir")
        .plugin_config(config.as_bytes())
        .env("WEIR_DEBUG_SECRET", DEBUG_SECRET)
        .start_at_ns(NOW_MS * 1_000_000)
        .workers(2)
        .cluster("weir_redis", Upstream::held())
}

/// A configuration with these rules and other fields.
pub fn config(rules: &[&str], fields: &str) -> String {
    let comma = if fields.is_empty() { "" } else { "," };
    format!(
        r#"{{ "user_header": "x-user-id", "rules": [{}]{comma}{fields} }}"#,
        rules.join(",")
    )
}

impl Limiter {
    pub fn new(rules: &[&str]) -> Self {
        Self::with(rules, "")
    }

    pub fn with(rules: &[&str], fields: &str) -> Self {
        Self {
            host: host(&config(rules, fields)).start().unwrap(),
        }
    }

    /// The variant that receives responses.
    pub fn with_responses(rules: &[&str], fields: &str) -> Self {
        Self {
            host: host_of("ratelimit-headers", &config(rules, fields))
                .start()
                .unwrap(),
        }
    }

    pub fn request(&self, worker: usize, user: &str) -> RequestBuilder {
        let request = self.host.request(worker).method("GET").path("/api/things");
        request
            .header("x-user-id", user)
            .property(&["source", "address"], "192.0.2.1:1")
    }

    /// A request of this user on worker 0.
    pub fn ask(&self, user: &str) -> Stream {
        self.request(0, user).send()
    }

    /// How many of `count` requests pass.
    pub fn passed(&self, user: &str, count: usize) -> usize {
        let requested = (0..count).map(|_| self.ask(user));
        requested.filter(is_passed).count()
    }

    /// A counter of one rule.
    pub fn count(&self, subject: &str, rule: &str) -> u64 {
        self.metric(&format!("weir_ratelimit_{subject}_total.rule.{rule}"))
    }

    /// A counter. Filters publish their counters on ticks.
    pub fn metric(&self, name: &str) -> u64 {
        // Ticks start after the first stream's wake-up.
        self.host.run_until_idle();
        self.host.tick();
        self.host.metric(name).unwrap_or(0)
    }
}

pub fn is_passed(stream: &Stream) -> bool {
    stream.is_continued()
}

pub fn header(stream: &Stream, name: &str) -> Option<String> {
    let reply = stream.reply()?;
    reply.header(name).map(ToOwned::to_owned)
}

/// A header of the response that reaches the client.
pub fn response_header(stream: &Stream, name: &str) -> Option<String> {
    stream.respond(200, [("content-type", "text/plain")], "");
    let StreamState::Responded(response) = stream.state() else {
        panic!("{:?}", stream.state());
    };
    response.headers.text(name).map(ToOwned::to_owned)
}
