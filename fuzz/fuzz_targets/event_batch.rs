//! [`weir_fuzz::event_batch`] under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::event_batch(data));
