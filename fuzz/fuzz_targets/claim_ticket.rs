//! [`weir_fuzz::claim_ticket`] under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::claim_ticket(data));
