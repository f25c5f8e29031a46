//! The whole claim protocol under faults: shards, gateways, SQL and reconciler, with steps in any order.
//!
//! Every party is a process of single steps: a call of a script, or an SQL transaction. Between any two steps, others
//! may run, and the process may crash. A reply may be lost. A call may arrive twice, or long after its caller has gone.
//! Redis may lose its last writes. The test checks the invariants after each step. At the end it repairs the remaining
//! state like the origin's reconciler; then exactly the initial stock must be sold.
//!
//! The same histories run thousands of times on the model alone, and on a real Redis with the real Lua, whose replies
//! must equal the model's.

mod parties;
mod shards;
mod sql;
mod world;

use crate::support::Server;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use weir_sale::ledger::Deduction;
use world::{Fault, Setting, World};

fn any_fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        8 => (0..12_u8).prop_map(Fault::Buy),
        30 => any::<usize>().prop_map(Fault::Step),
        2 => any::<usize>().prop_map(Fault::Crash),
        2 => any::<usize>().prop_map(Fault::LoseReply),
        2 => any::<usize>().prop_map(Fault::Twice),
        2 => any::<usize>().prop_map(Fault::Delay),
        3 => any::<usize>().prop_map(Fault::DeliverLate),
        3 => any::<u32>().prop_map(Fault::Rebalance),
        2 => Just(Fault::Reconcile),
        2 => any::<usize>().prop_map(Fault::Pay),
        2 => any::<usize>().prop_map(Fault::Cancel),
        2 => (0..400_u64).prop_map(Fault::Pass),
    ]
}

fn any_loss() -> impl Strategy<Value = Fault> {
    (prop::option::of(any::<u32>()), 0..6_usize)
        .prop_map(|(shard, writes)| Fault::LoseWrites { shard, writes })
}

fn any_setting() -> impl Strategy<Value = Setting> {
    let deduction = prop_oneof![3 => Just(Deduction::AtOrder), 1 => Just(Deduction::AtPayment)];
    (1..5_u32, 0..9_u64, 1..3_u32, deduction).prop_map(|(shards, total, user_cap, deduction)| {
        Setting {
            shards,
            total,
            user_cap,
            deduction,
        }
    })
}

fn histories(losses: bool) -> impl Strategy<Value = (Setting, Vec<Fault>)> {
    let fault = match losses {
        true => prop_oneof![20 => any_fault(), 1 => any_loss()].boxed(),
        false => any_fault().boxed(),
    };
    (any_setting(), prop::collection::vec(fault, 1..120))
}

/// Runs `cases` histories; a failure prints its seed and the smallest failing history.
fn run(cases: u32, losses: bool, mut world: impl FnMut(Setting) -> World) {
    let config = ProptestConfig {
        cases,
        // The failure itself is printed; no file of seeds is written.
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let world = std::cell::RefCell::new(&mut world);
    let outcome = TestRunner::new(config).run(&histories(losses), |(setting, faults)| {
        let mut world = (world.borrow_mut())(setting);
        for fault in faults {
            world.suffer(fault);
            world.check();
        }
        world.tidy_up();
        world.sell_out();
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

#[test]
fn no_unit_is_oversold_or_unsold_when_any_step_breaks() {
    run(10_000, false, |setting| World::new(setting, None));
}

#[test]
fn no_unit_is_oversold_or_unsold_when_redis_loses_last_writes() {
    run(10_000, true, |setting| World::new(setting, None));
}

#[test]
fn lua_on_a_real_redis_matches_the_model_at_every_step() {
    let server = Server::start();
    run(400, true, |setting| World::new(setting, Some(&server)));
}
