/** A proof of work, as the gateway sends it in a challenge. */
export interface Work {
    text: string;
    /** The number of leading zero bits, 1 to 32. */
    bits: number;
}
/** Tries counters. Each step tries at most `count`; it yields null until a counter is a solution. */
export declare function attempts({ text, bits }: Work, count: number): Generator<string | null, void>;
