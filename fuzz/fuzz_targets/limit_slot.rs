//! [`weir_fuzz::limit_slot`] under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::limit_slot(data));
