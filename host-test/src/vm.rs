//! One VM: a module's instance, its exports, and its fuel.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Mutex, OnceLock};

use wasmtime::{Config, Engine, Func, Instance, InstancePre, Linker, Module, Store, Val};

use crate::calls::{self, VmData};
use crate::world::{ContextId, VmUid, World};

/// One engine for the whole test process, so that each module is compiled once.
fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let mut config = Config::new();
        config.consume_fuel(true);
        Engine::new(&config).expect("this configuration is valid on every platform with cranelift")
    })
}

/// Compiles `bytes` (binary or text), or returns the cached module.
pub(crate) fn compile(bytes: &[u8]) -> wasmtime::Result<Module> {
    static CACHE: OnceLock<Mutex<HashMap<Vec<u8>, Module>>> = OnceLock::new();
    let cache = CACHE.get_or_init(Mutex::default);
    let lock = || {
        cache
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    };
    if let Some(module) = lock().get(bytes) {
        return Ok(module.clone());
    }
    let module = Module::new(engine(), bytes)?;
    lock().insert(bytes.to_vec(), module.clone());
    Ok(module)
}

/// Links a module once for all its VMs. Unknown imports trap when called, with their name.
pub(crate) fn prepare(module: &Module) -> wasmtime::Result<InstancePre<VmData>> {
    let mut linker = Linker::new(engine());
    calls::link(&mut linker)?;
    linker.define_unknown_imports_as_traps(module)?;
    linker.instantiate_pre(module)
}

/// A callback's result and cost.
pub(crate) struct CallbackResult {
    pub result: Result<u32, String>,
    pub fuel: u64,
}

pub(crate) struct Vm {
    store: RefCell<Store<VmData>>,
    exports: HashMap<String, Func>,
    fuel_max: Cell<u64>,
}

impl Vm {
    pub fn new(
        pre: &InstancePre<VmData>,
        world: Rc<RefCell<World>>,
        uid: VmUid,
        fuel_max: u64,
    ) -> wasmtime::Result<Self> {
        let data = VmData {
            world,
            uid,
            memory: None,
            alloc: None,
            current: 0,
            effective: 0,
            refused: None,
        };
        let mut store = Store::new(engine(), data);
        store.set_fuel(fuel_max)?;
        let instance = pre.instantiate(&mut store)?;
        let alloc = ["proxy_on_memory_allocate", "malloc"]
            .iter()
            .find_map(|name| instance.get_typed_func(&mut store, name).ok());
        store.data_mut().alloc = alloc;
        store.data_mut().memory = instance.get_memory(&mut store, "memory");
        let exports = exports(&instance, &mut store);
        Ok(Self {
            store: RefCell::new(store),
            exports,
            fuel_max: Cell::new(fuel_max),
        })
    }

    pub fn memory_pages(&self) -> u64 {
        let store = self.store.borrow();
        let memory = store.data().memory;
        memory.map_or(0, |memory| memory.size(&*store))
    }

    pub fn exports(&self, name: &str) -> bool {
        self.exports.contains_key(name)
    }

    /// Takes effect with the next callback.
    pub fn limit_fuel(&self, fuel: u64) {
        self.fuel_max.set(fuel);
    }

    /// Calls an export on behalf of `context`. One without a result returns 0; a trap returns its text.
    pub fn call(&self, context: ContextId, name: &str, args: &[u32]) -> CallbackResult {
        let mut store = self.store.borrow_mut();
        let data = store.data_mut();
        (data.current, data.effective, data.refused) = (context, 0, None);
        let Some(func) = self.exports.get(name) else {
            return CallbackResult {
                result: Ok(0),
                fuel: 0,
            };
        };
        let fuel_max = self.fuel_max.get();
        let result = run(&mut store, func, args, fuel_max);
        let fuel = fuel_max - store.get_fuel().unwrap_or(0);
        CallbackResult { result, fuel }
    }
}

fn exports(instance: &Instance, store: &mut Store<VmData>) -> HashMap<String, Func> {
    instance
        .exports(&mut *store)
        .filter_map(|export| {
            let name = export.name().to_owned();
            Some((name, export.into_func()?))
        })
        .collect()
}

fn run(store: &mut Store<VmData>, func: &Func, args: &[u32], fuel: u64) -> Result<u32, String> {
    let mut results = vec![Val::I32(0); func.ty(&*store).results().len()];
    let args: Vec<_> = args.iter().map(|arg| Val::I32(arg.cast_signed())).collect();
    store.set_fuel(fuel).map_err(|error| error.to_string())?;
    func.call(store, &args, &mut results)
        .map_err(|error| describe(&error))?;
    Ok(match results.first() {
        Some(Val::I32(value)) => value.cast_unsigned(),
        _ => 0,
    })
}

/// The trap, then its location.
fn describe(error: &wasmtime::Error) -> String {
    format!("{}\n{error:?}", error.root_cause())
}
