//! [`weir_fuzz::fitment_browse`] under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::fitment_browse(data));
