/** `full`: everything; `anonymous`: no visitor name; `none`: no events. */
export type Consent = 'full' | 'anonymous' | 'none';
export interface EventOptions {
    /** The address of `/events`. */
    url: string;
    /** The browser's write key. */
    key: string;
    /** Default: `full`. */
    consent?: Consent;
    /** Tracks `page` with the path. */
    page?: boolean;
    /** Sets the cookies `weir_visitor` and `weir_consent`, for views without scripts. */
    cookie?: boolean;
}
export interface Events {
    /** Starts to send. Call it once. */
    init(options: EventOptions): void;
    /** Queues an event and returns its id; undefined without consent. */
    track(type: string, attributes?: object): string | undefined;
    /** Changes the consent. `anonymous` forgets the visitor's name, `none` also unsent events. */
    consent(level: Consent): void;
    /** The visitor's random name; empty without full consent. */
    visitor(): string;
    /** Adds the visitor's views to the history of the signed-in user: `POST /history/join`. Returns the number of joined views. */
    join(url?: string, options?: RequestInit): Promise<number>;
}
/** A random UUID, also on pages without a secure context. */
export declare const uuid: () => string;
export declare function createEvents(): Events;
