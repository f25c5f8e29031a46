//! Builds a host.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use crate::abi::Status;
use crate::calls::property::path_of;
use crate::host::Host;
use crate::plugin::{FailurePolicy, Plugin, StartError};
use crate::process::Process;
use crate::upstream::Upstream;
use crate::vm;
use crate::world::{ForeignFn, START_NS};

/// About 10 s of execution: an endless loop fails a test instead of blocking it.
const FUEL_PER_CALLBACK: u64 = 10_000_000_000;

/// Answering many streams from one callback recurses in Envoy; V8's stack overflows at around 500.
const ANSWERS_PER_CALLBACK: usize = 450;

enum Source {
    File(PathBuf),
    Bytes(Vec<u8>),
}

/// The parameters of a [`Host`]. Create one with [`Host::builder`].
#[must_use = "nothing runs before `start`"]
pub struct Builder {
    source: Option<Source>,
    vm_id: String,
    root_id: String,
    vm_config: Vec<u8>,
    config: Vec<u8>,
    env: Vec<(String, String)>,
    workers: usize,
    clusters: Vec<(String, Upstream)>,
    foreign: Vec<(String, ForeignFn)>,
    properties: Vec<(Vec<u8>, Vec<u8>)>,
    policy: FailurePolicy,
    shows_body_to_held: bool,
    fuel_max: u64,
    answers_max: usize,
    start_ns: Option<u64>,
    process: Option<Rc<Process>>,
    strict: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            source: None,
            vm_id: String::new(),
            root_id: String::new(),
            vm_config: Vec::new(),
            config: Vec::new(),
            env: Vec::new(),
            workers: 1,
            clusters: Vec::new(),
            foreign: Vec::new(),
            properties: Vec::new(),
            policy: FailurePolicy::default(),
            shows_body_to_held: false,
            fuel_max: FUEL_PER_CALLBACK,
            answers_max: ANSWERS_PER_CALLBACK,
            start_ns: None,
            process: None,
            strict: true,
        }
    }
}

impl Builder {
    /// The built module, binary or text. [`start`](Self::start) reads it, and compiles it once per test process.
    pub fn module_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.source = Some(Source::File(path.into()));
        self
    }

    /// A module in memory.
    pub fn module_bytes(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.source = Some(Source::Bytes(bytes.into()));
        self
    }

    /// A module as WebAssembly text.
    pub fn module_wat(self, text: impl AsRef<str>) -> Self {
        self.module_bytes(text.as_ref().as_bytes())
    }

    /// The VM's id, which scopes shared data and queues. Default: empty, and then shared with all other plugins without
    /// an id.
    pub fn vm_id(mut self, vm_id: &str) -> Self {
        self.vm_id = vm_id.to_owned();
        self
    }

    /// The plugin's root id, which the filter can read as the property `plugin_root_id`.
    pub fn root_id(mut self, root_id: &str) -> Self {
        self.root_id = root_id.to_owned();
        self
    }

    /// The VM's configuration (`vm_config.configuration`).
    pub fn vm_config(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.vm_config = bytes.as_ref().to_vec();
        self
    }

    /// The plugin's configuration.
    pub fn plugin_config(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.config = bytes.as_ref().to_vec();
        self
    }

    /// An environment variable of the VM (`vm_config.environment_variables`).
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.env.push((key.to_owned(), value.to_owned()));
        self
    }

    /// The number of Envoy's workers; default: 1. The plugin is also configured in two other VMs: a canary, which is
    /// dropped, and the main thread's, which ticks but gets no requests.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// A cluster that the filter can call. Any other name gives `BadArgument`.
    pub fn cluster(mut self, name: &str, upstream: Upstream) -> Self {
        self.clusters.push((name.to_owned(), upstream));
        self
    }

    /// A foreign function. Any other name gives `NotFound`.
    pub fn foreign_function(
        mut self,
        name: &str,
        function: impl FnMut(&[u8]) -> Result<Vec<u8>, Status> + 'static,
    ) -> Self {
        let function = Rc::new(RefCell::new(function));
        self.foreign.push((name.to_owned(), function));
        self
    }

    /// A property of every request and every root context, unless a request has its own value.
    pub fn property(mut self, path: &[&str], value: impl AsRef<[u8]>) -> Self {
        self.properties
            .push((path_of(path), value.as_ref().to_vec()));
        self
    }

    /// The behaviour after a VM has died; default: [`FailurePolicy::FailClosed`].
    pub fn failure_policy(mut self, policy: FailurePolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Passes the body of a stream that is paused at its headers to the filter (`allow_on_headers_stop_iteration`). By
    /// default, Envoy does not.
    pub fn allow_on_headers_stop_iteration(mut self) -> Self {
        self.shows_body_to_held = true;
        self
    }

    /// Maximum fuel of one callback before it traps; default: 10,000,000,000.
    pub fn fuel_per_callback(mut self, fuel: u64) -> Self {
        self.fuel_max = fuel;
        self
    }

    /// Maximum streams that one callback may resume or answer before the VM dies, like V8's stack overflow in Envoy;
    /// default: 450.
    pub fn answers_per_callback(mut self, answers: usize) -> Self {
        self.answers_max = answers;
        self
    }

    /// The start of the virtual clock, in nanoseconds since the Unix epoch; default: the first second of 2024. Has no
    /// effect together with [`beside`](Self::beside).
    pub fn start_at_ns(mut self, at_ns: u64) -> Self {
        self.start_ns = Some(at_ns);
        self
    }

    /// Runs this plugin in the same process as another: they share the clock, the event loop, shared data, queues,
    /// clusters, metrics and logs. Each has its own VMs.
    pub fn beside(mut self, other: &Host) -> Self {
        self.process = Some(other.process());
        self
    }

    /// Allows [violations](crate::Violation): the host does not fail the test for them when it is dropped.
    pub fn allow_violations(mut self) -> Self {
        self.strict = false;
        self
    }

    /// Loads the module and configures it in `workers + 2` VMs.
    ///
    /// # Errors
    /// If the module is missing or can't be loaded, or if the filter refuses its configuration or traps on it; the
    /// error then contains its log.
    pub fn start(self) -> Result<Host, StartError> {
        let bytes = match self.source.ok_or(StartError::NoModule)? {
            Source::Bytes(bytes) => bytes,
            Source::File(path) => std::fs::read(&path).map_err(|source| StartError::Read {
                path: path.display().to_string(),
                source,
            })?,
        };
        let load = |error: wasmtime::Error| StartError::Load(format!("{error:?}"));
        let module = vm::compile(&bytes).map_err(load)?;
        let plugin = Rc::new(Plugin {
            pre: vm::prepare(&module).map_err(load)?,
            vm_id: self.vm_id,
            root_id: self.root_id,
            vm_config: self.vm_config,
            config: RefCell::new(self.config),
            env: self.env,
            policy: self.policy,
            shows_body_to_held: self.shows_body_to_held,
            fuel_max: self.fuel_max,
            answers_max: self.answers_max,
        });
        let start_ns = self.start_ns.unwrap_or(START_NS);
        let process = self
            .process
            .unwrap_or_else(|| Rc::new(Process::new(start_ns)));
        {
            let mut world = process.world.borrow_mut();
            world.clusters.extend(self.clusters);
            world.foreign.extend(self.foreign);
            world.properties.extend(self.properties);
        }
        let slots = process.start_plugin(&plugin, self.workers)?;
        Ok(Host::new(process, plugin, slots, self.strict))
    }
}
