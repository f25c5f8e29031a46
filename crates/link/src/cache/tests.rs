use super::*;
use crate::record::Rule;
use alloc::format;
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    entries_max: 100,
    bytes_max: 100_000,
    unknown_max: 10,
    fresh_ms: 60_000,
    origin_fresh_ms: 10_000,
    unknown_ms: 5_000,
    renew_permille: 100,
};

fn memory() -> Memory {
    Memory::new(LIMITS, 7)
}

fn name(code: &str) -> LinkName {
    LinkName::new(&DomainId::new("s").unwrap(), code.as_bytes()).unwrap()
}

fn link() -> Link {
    Link::to("https://t.example/")
}

/// A link as read from Redis.
fn reading(link: Link, left_ms: Option<u64>) -> LinkReading {
    LinkReading {
        link,
        is_used_up: false,
        left_ms,
        source: Source::Redis,
    }
}

fn is_due(memory: &mut Memory, now_ms: u64) -> bool {
    match memory.find(&name("abc"), now_ms) {
        CacheLookup::Link { is_due, .. } => is_due,
        other => panic!("{other:?}"),
    }
}

#[test]
fn due_link_is_refreshed_by_a_single_request() {
    let mut memory = memory();
    assert_eq!(memory.find(&name("abc"), 0), CacheLookup::Nothing);
    memory.learn(&name("abc"), reading(link(), None), 1_000);
    assert!(!is_due(&mut memory, 60_999));
    assert!(is_due(&mut memory, 61_000));
    assert!(!is_due(&mut memory, 61_999));
    assert!(is_due(&mut memory, 62_000)); // no answer came to the first reading
}

#[test]
fn origin_answers_and_used_up_links_are_refreshed_sooner() {
    let mut memory = memory();
    let of_origin = LinkReading {
        source: Source::Origin,
        ..reading(link(), None)
    };
    memory.learn(&name("abc"), of_origin.clone(), 0);
    assert!(!is_due(&mut memory, 9_999));
    assert!(is_due(&mut memory, 10_000));
    let is_used_up = true;
    memory.learn(
        &name("abc"),
        LinkReading {
            is_used_up,
            ..of_origin
        },
        0,
    );
    assert!(!is_due(&mut memory, 999));
    assert!(is_due(&mut memory, 1_000));
}

#[test]
fn inspection_does_not_refresh_the_link_every_time() {
    let mut memory = memory();
    let living = Link {
        life_ms: 100_000,
        ..link()
    };
    // A tenth of its lifetime has passed without a renewal.
    memory.learn(&name("abc"), reading(living, Some(50_000)), 0);
    assert!(!is_due(&mut memory, 999));
    assert!(is_due(&mut memory, 1_000));
}

#[test]
fn retrusted_link_is_cached_and_soon_due_for_refresh() {
    let mut memory = memory();
    memory.learn(&name("abc"), reading(link(), None), 0);
    memory.revalidate_all();
    memory.trust(&name("abc"), 10);
    assert!(!is_due(&mut memory, 1_009));
    assert!(is_due(&mut memory, 1_010));
    memory.trust(&name("abd"), 10);
    assert_eq!(memory.find(&name("abd"), 11), CacheLookup::Nothing);
}

#[test]
fn link_is_refreshed_when_its_lifetime_needs_renewal() {
    let mut memory = memory();
    let living = || Link {
        life_ms: 10_000,
        ..link()
    };
    memory.learn(&name("abc"), reading(living(), Some(10_000)), 0);
    assert!(!is_due(&mut memory, 1_000));
    assert!(is_due(&mut memory, 1_001));
    // Another gateway has renewed it in the meantime.
    memory.learn(&name("abc"), reading(living(), Some(9_500)), 2_000);
    assert!(!is_due(&mut memory, 2_500));
    assert!(is_due(&mut memory, 2_501));
    // The read that found the link overdue also renewed it, or the link is disabled: no early read.
    let disabled = Link {
        is_disabled: true,
        ..living()
    };
    memory.learn(&name("abc"), reading(disabled.clone(), Some(9_500)), 3_000);
    assert!(!is_due(&mut memory, 3_501));
    memory.learn(&name("abc"), reading(disabled, Some(100)), 3_000);
    assert!(!is_due(&mut memory, 3_099));
    assert_eq!(memory.find(&name("abc"), 3_100), CacheLookup::Nothing);
    assert_eq!(memory.stale(&name("abc"), 3_100), None);
}

#[test]
fn stale_link_is_available_when_revalidation_is_impossible() {
    let mut memory = memory();
    memory.learn(&name("abc"), reading(link(), None), 0);
    memory.learn_unknown(&name("abd"), 0);
    memory.revalidate_all();
    assert_eq!(memory.find(&name("abc"), 1), CacheLookup::MustRevalidate);
    assert_eq!(memory.find(&name("abd"), 1), CacheLookup::Nothing);
    assert_eq!(memory.stale(&name("abc"), 1).unwrap().link, link());
    memory.learn(&name("abc"), reading(link(), None), 2);
    assert!(!is_due(&mut memory, 3));
}

#[test]
fn edit_invalidates_the_cached_link() {
    let mut memory = memory();
    memory.learn(&name("abc"), reading(link(), None), 0);
    memory.forget(&name("abc"));
    assert_eq!(memory.find(&name("abc"), 1), CacheLookup::Nothing);
    assert_eq!(memory.stale(&name("abc"), 1), None);
    memory.learn_unknown(&name("abc"), 1);
    assert_eq!(memory.find(&name("abc"), 2), CacheLookup::Unknown);
    memory.drop_link(&name("abc"));
    assert_eq!(memory.find(&name("abc"), 2), CacheLookup::Unknown);
    memory.forget(&name("abc"));
    assert_eq!(memory.find(&name("abc"), 2), CacheLookup::Nothing);
}

#[test]
fn link_with_clicks_left_again_is_dropped_from_the_cache() {
    let mut memory = memory();
    memory.learn(&name("abc"), reading(link(), None), 0);
    memory.drop_link(&name("abc"));
    assert_eq!(memory.find(&name("abc"), 1), CacheLookup::Nothing);
}

#[test]
fn unknown_codes_are_cached_for_limited_time_and_number() {
    let mut memory = memory();
    memory.learn_unknown(&name("abc"), 1_000);
    assert_eq!(memory.find(&name("abc"), 5_999), CacheLookup::Unknown);
    assert_eq!(memory.find(&name("abc"), 6_000), CacheLookup::Nothing);
    // A clock that was set back does not keep it alive.
    assert_eq!(memory.find(&name("abc"), 0), CacheLookup::Nothing);
    memory.learn(&name("hot"), reading(link(), None), 0);
    for number in 0..1_000 {
        memory.learn_unknown(&name(&format!("x{number:03}")), 1_000);
    }
    assert_eq!(memory.unknown.len(), 10);
    assert_eq!(memory.unknown.slots.len(), 10);
    assert_eq!(memory.size().0, 1);
}

#[test]
fn frequently_read_link_is_not_evicted() {
    let mut memory = memory();
    memory.learn(&name("hot"), reading(link(), None), 0);
    for number in 0..1_000 {
        memory.find(&name("hot"), 1);
        memory.learn(&name(&format!("x{number:03}")), reading(link(), None), 1);
    }
    assert!(matches!(
        memory.find(&name("hot"), 1),
        CacheLookup::Link { .. }
    ));
    assert_eq!(memory.size().0, 100);
    assert_eq!(memory.take_evictions(), 901);
}

#[test]
fn cache_is_empty_when_clock_is_behind_all_entries() {
    let mut memory = memory();
    memory.learn_unknown(&name("abc"), 1_000);
    assert_eq!(memory.find(&name("abc"), 1_000), CacheLookup::Unknown);
    assert_eq!(memory.find(&name("abc"), 999), CacheLookup::Nothing);
}

#[test]
fn cached_link_size_grows_with_its_addresses_and_languages() {
    let mut memory = memory();
    let mut told_of = |code: &str, link: Link| {
        let before = memory.size().1;
        memory.learn(&name(code), reading(link, None), 0);
        memory.size().1 - before
    };
    let plain = told_of("abc", link());
    assert_eq!(plain, ENTRY_BYTES + "https://t.example/".len() + 64);
    let rule = Rule {
        platforms: Vec::new(),
        languages: ["de", "en"].map(Into::into).into(),
        target: "https://t.example/de".into(),
        ..Rule::default()
    };
    let ruled = Link {
        rules: [rule].into(),
        ..link()
    };
    let more = "https://t.example/de".len() + 64 + 2 * 32;
    assert_eq!(told_of("abd", ruled), plain + more);
}

#[test]
fn fitting_entry_is_cached_and_oversized_entry_evicts_nothing() {
    let mut cache = Cache::<u32>::new(2, 100, 3);
    cache.insert(b"a", 1, 40);
    cache.insert(b"b", 2, 60);
    cache.insert(b"x", 9, 101);
    assert_eq!((cache.get(b"a").copied(), cache.evictions), (Some(1), 0));
    assert_eq!(
        (cache.get(b"b").copied(), cache.get(b"x").copied()),
        (Some(2), None)
    );
    cache.insert(b"c", 3, 100);
    assert_eq!((cache.get(b"c").copied(), cache.evictions), (Some(3), 2));
    assert_eq!((cache.len(), cache.bytes), (1, 100));
    cache.remove(b"c");
    assert_eq!((cache.len(), cache.bytes, cache.evictions), (0, 0, 2));
}

#[test]
fn evictions_are_reported_once() {
    let mut memory = memory();
    for number in 0..103 {
        memory.learn(&name(&format!("x{number:03}")), reading(link(), None), 1);
    }
    assert_eq!((memory.take_evictions(), memory.take_evictions()), (3, 0));
}

#[test]
fn cached_link_name_equals_its_link_id() {
    assert_eq!(name("a-_Z9").as_bytes(), b"s/a-_Z9");
    let id: LinkId = "s/aZ3k9Qx".parse().unwrap();
    assert_eq!(LinkName::from(&id).as_bytes(), b"s/aZ3k9Qx");
    assert_eq!(LinkName::from(&id).to_link(), Some(id));
    let domain = DomainId::new("d".repeat(16)).unwrap();
    let longest = LinkName::new(&domain, &[b'c'; 32]).unwrap();
    assert_eq!(longest.as_bytes().len(), LinkId::LEN_MAX);
    let nested: LinkId = "s/spring/24".parse().unwrap();
    assert_eq!(LinkName::from(&nested).to_link(), Some(nested));
    for bad in [
        &b""[..],
        b"ab",
        b"a}b",
        b"a//b",
        b"/ab",
        b"ab/",
        b"\xff\xff\xff",
        &[b'c'; 33],
    ] {
        assert_eq!(LinkName::new(&domain, bad), None);
    }
}

proptest! {
    /// After any sequence of operations, the bounds hold and lookups return the latest value.
    #[test]
    fn cache_never_exceeds_its_bounds(
        steps in prop::collection::vec((0_u8..20, 0_u8..4, 1_usize..400), 0..300),
        entries_max in 0_usize..12, bytes_max in 0_usize..1_000
    ) {
        let mut cache = Cache::<u32>::new(entries_max, bytes_max, 3);
        let mut last = BTreeMap::new();
        for (step, (number, subject, bytes)) in steps.into_iter().enumerate() {
            let name = [number];
            match subject {
                0 | 1 => {
                    let value = u32::try_from(step).unwrap();
                    cache.insert(&name, value, bytes);
                    last.insert(number, value);
                }
                2 => {
                    cache.remove(&name);
                    last.remove(&number);
                }
                _ => {
                    let found = cache.get(&name).copied();
                    prop_assert!(found.is_none() || found == last.get(&number).copied());
                }
            }
            let retained: Vec<_> = cache.slots.iter().flatten().collect();
            prop_assert_eq!(retained.len(), cache.len());
            prop_assert_eq!(retained.iter().map(|slot| slot.bytes).sum::<usize>(), cache.bytes);
            prop_assert!(cache.len() <= entries_max && cache.bytes <= bytes_max);
            prop_assert!(cache.slots.len() <= entries_max);
        }
    }
}

#[test]
fn ended_link_is_cached_as_long_as_an_unknown_code() {
    let mut memory = memory();
    memory.learn(&name("abc"), reading(link(), Some(0)), 1_000);
    for now_ms in [1_000, 5_999] {
        let CacheLookup::Link {
            cached: existing,
            is_due,
        } = memory.find(&name("abc"), now_ms)
        else {
            panic!("it is known");
        };
        assert!(existing.has_ended && !is_due);
        assert!(memory.stale(&name("abc"), now_ms).is_some());
    }
    assert_eq!(memory.find(&name("abc"), 6_000), CacheLookup::Nothing);
    memory.learn(&name("abc"), reading(link(), Some(0)), 1_000);
    memory.learn(&name("abc"), reading(link(), Some(1)), 1_000);
    let found = memory.find(&name("abc"), 1_000);
    assert!(matches!(found, CacheLookup::Link { cached: existing, .. } if !existing.has_ended));
}
