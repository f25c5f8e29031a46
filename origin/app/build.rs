//! The migrations are part of the program: a new one must build it again.

fn main() {
    println!("cargo:rerun-if-changed=../migrations");
}
