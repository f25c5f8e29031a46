//! [`weir_fuzz::link_domains`] under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::link_domains(data));
