//! [`weir_fuzz::fitment_check`] under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::fitment_check(data));
