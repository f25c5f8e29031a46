export interface paths {
    "/.weir/room/{room}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get a visitor's position in a waiting room
         * @description Answers with the queue token's position and never admits. `status_path` of the filter sets the path.
         */
        get: operations["getRoomPosition"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Send behaviour events
         * @description Stores up to 1,000 events and answers when all are durable, with one verdict per event.
         */
        post: operations["collectEvents"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/fitment/check": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Check which parts fit which vehicles
         * @description Checks up to 1,000 pairs. Unknown fitment is never answered as "does not fit".
         */
        post: operations["checkFitment"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/fitment/garage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the signed-in user's vehicles, default first; at most 20
         * @description List the signed-in user's vehicles, default first; at most 20.
         */
        get: operations["getGarage"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/fitment/garage/{vehicle}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Add a vehicle to the garage
         * @description Adds a vehicle to the signed-in user's garage, optionally as the default.
         */
        put: operations["addToGarage"];
        post?: never;
        /**
         * Remove a vehicle from the garage
         * @description Remove a vehicle from the garage.
         */
        delete: operations["removeFromGarage"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/fitment/skus": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the parts that fit a vehicle
         * @description List the parts that fit a vehicle.
         */
        get: operations["listFittingSkus"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/history": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List recently viewed products, newest first
         * @description Pages of products that a user or visitor viewed last, each SPU once.
         */
        get: operations["listHistory"];
        put?: never;
        post?: never;
        /**
         * Clear a list
         * @description Earlier views never come back.
         */
        delete: operations["clearHistory"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/history/count": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Count the products in a list
         * @description Count the products in a list.
         */
        get: operations["countHistory"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/history/delete": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Delete up to 200 products from a list
         * @description They stay deleted until they are viewed again.
         */
        post: operations["deleteFromHistory"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/history/join": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Merge a guest's views into the signed-in user's list
         * @description Repeating it changes nothing.
         */
        post: operations["joinHistory"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/history/{sku}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Delete a product from a list
         * @description It stays deleted until it is viewed again. For a SKU that equals a path under /history, use POST /history/delete.
         */
        delete: operations["deleteFromHistoryBySku"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/my-orders": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the user's own orders
         * @description Orders of all sales, newest first, including archived sales.
         */
        get: operations["listMyOrders"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/orders/{order}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get an order with its last payment
         * @description The signed-in user gets only their own orders.
         */
        get: operations["getOrder"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/orders/{order}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Cancel an unpaid order
         * @description Its units return to stock. Repeating it changes nothing.
         */
        post: operations["cancelOrder"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/orders/{order}/pay": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Start a payment
         * @description Starts a payment of an unpaid order, or returns the existing one. Only the provider's callback marks an order as paid.
         */
        post: operations["startPayment"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/public-sales": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the public sales
         * @description Pages of listed sales by start time, until an hour after their end. The answer is the same for everyone and cacheable;
         *     the origin queries SQL at most once per second.
         */
        get: operations["listPublicSales"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sales/{sale}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get the state of a sale
         * @description The gate answers from memory. It knows a sale from its warming on, by default five minutes before the start; GET /public-sales shows listed sales earlier.
         */
        get: operations["getSaleStatus"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sales/{sale}/checkout": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Get an order token
         * @description The checkout may require a challenge: 403 challenge_required has it. Repeat the request with its solution.
         */
        post: operations["getOrderToken"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sales/{sale}/draw": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get a draw's public data
         * @description The commitment is public from the beginning, the hash of the list when reservations have ended, and the seed after the
         *     draw. `weir-origin check-draw` verifies it.
         */
        get: operations["getDraw"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sales/{sale}/draw/entries": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the tickets of a draw
         * @description Returns the sorted tickets of a closed list, one per line. A page shorter than its limit is the last.
         */
        get: operations["listDrawEntries"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sales/{sale}/orders": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Order
         * @description Units that the gate has reserved become an order. Repeat the request with the same Idempotency-Key until it is answered.
         */
        post: operations["order"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/sales/{sale}/reservations": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get the signed-in user's reservation
         * @description Get the signed-in user's reservation.
         */
        get: operations["getReservation"];
        put?: never;
        /**
         * Reserve
         * @description Creates a reservation of the signed-in user for a sale with reservations. Repeating it changes nothing.
         */
        post: operations["createReservation"];
        /**
         * Cancel a reservation
         * @description Cancels the signed-in user's reservation. If the sale requires reservations, none of the user's claims can become an
         *     order from then on; existing orders stay. While reservations are open, the user can reserve again. Repeating it
         *     changes nothing.
         */
        delete: operations["cancelReservation"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * @description Approximate stock level.
         * @enum {string}
         */
        Band: "high" | "medium" | "low" | "reserved" | "none";
        /** @description A challenge before an order token: `challenge` of the problem challenge_required. */
        Challenge: {
            proof_of_work: {
                text: string;
                /** @description Leading zero bits of the solution's SHA-256. */
                bits: number;
                expires_at_ms: number;
            };
        } | {
            captcha: {
                /** @description The public key. */
                site_key: string;
            };
        };
        /** @description Public data of a draw. */
        Draw: {
            /** @description Algorithm: `weir-draw-1`. */
            algorithm: string;
            /**
             * Format: int64
             * @description Closing time of the list, in milliseconds since the Unix epoch; null: the list is open.
             */
            closed_at_ms: number | null;
            /** @description SHA-256 of the seed, in hex; public from the beginning. */
            commitment: string;
            /**
             * Format: int64
             * @description Time of the draw, in milliseconds since the Unix epoch; null: not drawn yet.
             */
            drawn_at_ms: number | null;
            /**
             * Format: int64
             * @description Number of entries; null: the list is open.
             */
            entries: number | null;
            /** @description SHA-256 of the sorted tickets, each ended by a line feed, in hex; null: the list is open. */
            list_sha256: string | null;
            /** @description The sale's id. */
            sale: string;
            /** @description The seed; null before the winners are stored. */
            seed: string | null;
            /**
             * Format: int64
             * @description Number of winners.
             */
            winners: number;
        };
        /** @description The answer to an event batch. Its status is 202 for all verdicts. */
        EventAnswer: {
            /** @description Number of accepted events. */
            accepted: number;
            /** @description The gateway dropped all events: the person has not consented. */
            dropped?: boolean;
            /** @description Number of duplicates. */
            duplicates: number;
            /** @description Number of rejected events. */
            rejected: number;
            /** @description The gateway dropped all events: the visitor is not in the sample. */
            sampled?: boolean;
            /** @description One verdict per event, in the order of the body. */
            verdicts: components["schemas"]["EventAnswerVerdict"][];
        };
        /** @description The outcome of one event. */
        EventAnswerVerdict: {
            /** @description The event's id, from the client or generated. */
            id?: string;
            /** @description Reason and place, for people. */
            message?: string;
            /**
             * @description Why it was rejected.
             * @enum {string}
             */
            reason?: "invalid" | "unknown_type" | "schema" | "too_large" | "clock" | "id_reused" | "customer_not_allowed";
            /**
             * @description Its outcome.
             * @enum {string}
             */
            verdict: "accepted" | "duplicate" | "rejected";
        };
        /** @description One event, a list, or a list with its sender's time. Each event is validated separately. */
        EventBody: components["schemas"]["NewEvent"] | components["schemas"]["EventList"] | components["schemas"]["EventBodyBatch"];
        /** @description Events with their sender's time. */
        EventBodyBatch: {
            /** @description The events in their order. */
            events: components["schemas"]["NewEvent"][];
            /**
             * Format: int64
             * @description Send time by the sender's clock, in milliseconds since the Unix epoch.
             */
            sent_at_ms?: number;
        };
        /** @description Events. */
        EventList: components["schemas"]["NewEvent"][];
        /**
         * @description Whether a part fits a vehicle.
         * @enum {string}
         */
        FitmentAnswer: "fits" | "does_not" | "unknown";
        /** @description The answers. */
        FitmentAnswers: {
            /** @description The SKUs. */
            skus: components["schemas"]["FitmentAnswersSku"][];
            /** @description The vehicles. */
            vehicles: string[];
        };
        /** @description The answers for a SKU. */
        FitmentAnswersSku: {
            /** @description One answer per vehicle, in order. */
            answers: components["schemas"]["FitmentAnswer"][];
            /** @description The SKU. */
            sku: string;
        };
        /** @description A query: which parts fit which vehicles. */
        FitmentCheck: {
            /** @description The SKUs, optionally with their SPUs. */
            skus: components["schemas"]["FitmentCheckPart"][];
            /** @description The vehicles, by 1 to 7 digits. */
            vehicles: string[];
        };
        /** @description A SKU, or a SKU with its SPU. */
        FitmentCheckPart: string | components["schemas"]["FitmentCheckSku"];
        /** @description A SKU with its SPU. */
        FitmentCheckSku: {
            /** @description The SKU. */
            sku: string;
            /** @description The SPU. */
            spu?: string;
        };
        /** @description A page of parts. */
        FitmentPage: {
            /** @description Start of the next page; absent: this is the last page. */
            next?: string;
            /** @description The SKUs. */
            skus: string[];
            /** @description The number of the vehicle. */
            vehicle: string;
        };
        /** @description A user's vehicles. */
        Garage: {
            /** @description The vehicles, default first. */
            vehicles: components["schemas"]["GarageVehicle"][];
        };
        /** @description A vehicle in a garage. */
        GarageVehicle: {
            /** @description Its engine. */
            engine?: string;
            /** @description Whether it is the default vehicle. */
            is_default: boolean;
            /** @description Its make. */
            make?: string;
            /** @description Its model. */
            model?: string;
            /** @description The vehicle's number. */
            vehicle: string;
            /**
             * Format: int32
             * @description Model year; 0: unknown.
             */
            year?: number;
        };
        /** @description Number of products in a list. */
        HistoryCount: {
            /** @description false: the cold store is unavailable, so the number may be too low. */
            complete: boolean;
            /**
             * Format: int64
             * @description The number.
             */
            count: number;
        };
        /** @description Products to delete from a list. */
        HistoryDelete: {
            /** @description The SKUs. */
            skus: string[];
        };
        /** @description A viewed product. */
        HistoryItem: {
            /** @description URL of its picture. */
            picture?: string;
            /** @description The SKU. */
            sku: string;
            /** @description The product that it is a variant of. */
            spu?: string;
            /** @description Its name. */
            title?: string;
            /**
             * Format: int64
             * @description Time of the last view, in milliseconds since the Unix epoch.
             */
            viewed_at_ms: number;
        };
        /** @description The guest whose views to merge. */
        HistoryJoin: {
            /** @description The visitor id, from a cookie. */
            visitor: string;
        };
        /** @description Result of a merge. */
        HistoryJoined: {
            /** @description false: merge again later. */
            complete: boolean;
            /** @description Number of merged views. */
            joined: number;
        };
        /** @description A page of a list. */
        HistoryPage: {
            /** @description false: the cold store is unavailable, so products may be missing. */
            complete: boolean;
            /** @description The products of this page, newest first. */
            items: components["schemas"]["HistoryItem"][];
            /** @description `before` of the next page; absent: this is the last page. */
            next?: string;
        };
        /** @description An event from a client. */
        NewEvent: {
            /**
             * Format: int64
             * @description Event time by the client's clock, in milliseconds since the Unix epoch.
             */
            at_ms?: number;
            /** @description Its attributes. */
            attributes?: Record<string, never>;
            /** @description The customer; only with a server key. */
            customer?: string;
            /** @description The event id; default: generated. */
            id?: string;
            /** @description Its registered type. */
            type: string;
            /** @description The visitor id, from a cookie. */
            visitor?: string;
        };
        /** @description An order for its buyer. */
        Order: {
            /** @description The order's id. */
            order: string;
            /**
             * Format: int64
             * @description Payment deadline; null: none, or already decided.
             */
            pay_by_ms: number | null;
            /** @description Price; null: the sale has none. */
            price: components["schemas"]["OrderPrice"] | null;
            /**
             * Format: int32
             * @description Number of units.
             */
            quantity: number;
            /** @description The sale's id. */
            sale: string;
            /** @description The SKU; null: the sale has none. */
            sku: string | null;
            /** @description Its state. */
            status: components["schemas"]["OrderStatus"];
            /** @description The user's id. */
            user: string;
        };
        /**
         * @description Data that matches the sale's payload_schema, such as a contact, an address or a variant. A sale without a schema
         *     accepts any body and does not store it.
         */
        OrderPayload: unknown;
        /** @description Price of an order. */
        OrderPrice: {
            /**
             * Format: int64
             * @description Total price.
             */
            amount: number;
            /** @description ISO 4217 code, such as EUR. */
            currency: string;
            /**
             * Format: int64
             * @description Price per unit at the time of the order, in the currency's smallest unit.
             */
            unit_amount: number;
        };
        /**
         * @description Status of an order.
         * @enum {string}
         */
        OrderStatus: "unpaid" | "paid" | "cancelled" | "expired";
        /** @description An order token. */
        OrderToken: {
            /** @description For x-weir-order-token. */
            token: string;
            /** @description When it becomes valid, in milliseconds since the Unix epoch. */
            usable_at_ms: number;
            /** @description When it expires. */
            expires_at_ms: number;
            /** @description The gateway's time. */
            now_ms: number;
        };
        /** @description A page of a user's own orders. */
        OwnOrders: {
            /** @description `after` of the next page; null: this is the last page. */
            next: string | null;
            /** @description The orders of this page, newest first. */
            orders: components["schemas"]["PaidOrder"][];
        };
        /** @description An order with its last payment. */
        PaidOrder: {
            /**
             * Format: int64
             * @description Creation time, in milliseconds since the Unix epoch.
             */
            created_at_ms: number;
            /** @description The order's id. */
            order: string;
            /**
             * Format: int64
             * @description Payment deadline; null: none, or already decided.
             */
            pay_by_ms: number | null;
            /** @description The buyer's data; null: the sale has no payload_schema. */
            payload: unknown;
            /** @description The last payment; null: none. */
            payment: components["schemas"]["Payment"] | null;
            /** @description Price; null: the sale has none. */
            price: components["schemas"]["OrderPrice"] | null;
            /**
             * Format: int32
             * @description Number of units.
             */
            quantity: number;
            /** @description The sale's id. */
            sale: string;
            /** @description The SKU; null: the sale has none. */
            sku: string | null;
            /** @description Its state. */
            status: components["schemas"]["OrderStatus"];
            /** @description The user's id. */
            user: string;
        };
        /** @description A payment. */
        Payment: {
            /** @description The order's id. */
            order: string;
            /** @description Payment page; null: your site provides it. */
            pay_url?: string;
            /** @description Payment id, as sent to the provider. */
            payment: string;
            /** @description Reason of the refund; null: none. */
            reason: string | null;
            /** @description Refund reference from the operator. */
            reference?: string;
            /** @description Its state. */
            state: components["schemas"]["PaymentState"];
        };
        /**
         * @description State of a payment.
         * @enum {string}
         */
        PaymentState: "started" | "paid" | "failed" | "refund_due" | "refunded";
        /** @description Price per unit. */
        Price: {
            /** @description ISO 4217 code, such as EUR. */
            currency: string;
            /**
             * Format: int64
             * @description In the currency's smallest unit, such as cents. 0 is free.
             */
            unit_amount: number;
        };
        /** @description A refusal (RFC 9457). */
        Problem: {
            /** @description `urn:weir:problem:` and the code. */
            type: string;
            /** @description The HTTP status. */
            status: number;
            /** @description The code, for programs. */
            error: string;
            /** @description One sentence in the buyer's language. */
            message?: string;
            /** @description The origin's: the code in words. */
            title?: string;
            /** @description The origin's: what was wrong. */
            detail?: string;
            /** @description The origin's: mistakes of a body. */
            errors?: components["schemas"]["ValidationError"][];
            /** @description With cap_reached: the user's order. */
            order?: string;
            challenge?: components["schemas"]["Challenge"];
            /** @description With sku_in_sale: the sale. */
            sale?: string;
            /** @description With sku_in_sale: where to order. */
            orders?: string;
        };
        /** @description A public sale. */
        PublicSale: {
            /**
             * Format: int64
             * @description End time (exclusive).
             */
            ends_at_ms: number;
            /** @description Its id. */
            id: string;
            /** @description Price per unit; null: none. */
            price: components["schemas"]["Price"] | null;
            /** @description Approximate stock level. */
            remaining: components["schemas"]["Band"];
            /** @description Reservation period; null: no reservation is needed. */
            reservation: components["schemas"]["Window"] | null;
            /** @description The SKU; null: none. */
            sku: string | null;
            /**
             * Format: int64
             * @description Start time, in milliseconds since the Unix epoch.
             */
            starts_at_ms: number;
            /** @description Its state. */
            state: components["schemas"]["SaleStage"];
            /** @description Display name. */
            title: string;
            /** @description Whether an order token is needed. */
            token: boolean;
            /**
             * Format: int32
             * @description Limit of units per user.
             */
            user_cap: number;
        };
        /** @description A page of sales. */
        PublicSales: {
            /** @description `after` of the next page; null: this is the last page. */
            next: string | null;
            /**
             * Format: int64
             * @description The origin's time, for countdowns; client clocks can be wrong.
             */
            now_ms: number;
            /** @description The sales of this page, earliest start first. */
            sales: components["schemas"]["PublicSale"][];
        };
        /** @description A reservation for its user. */
        Reservation: {
            /**
             * Format: int64
             * @description Creation time; null: no reservation.
             */
            at_ms: number | null;
            /**
             * Format: int64
             * @description A winner's rank: 1, 2, 3 …
             */
            place: number | null;
            /** @description The sale's id. */
            sale: string;
            /**
             * @description `checking`: valid after the risk check; `entered`: not drawn yet; `not_drawn`: the draw chose others; `cancelled`:
             *     no reservation.
             */
            state: components["schemas"]["ReservationState"];
            /** @description The user's ticket in the sale's draw. */
            ticket: string | null;
            /** @description The user's id. */
            user: string;
        };
        /**
         * @description State of a reservation: `checking`: valid after the risk check; `entered`: not drawn yet; `not_drawn`: the draw chose
         *     others; `cancelled`: no reservation.
         * @enum {string}
         */
        ReservationState: "reserved" | "checking" | "entered" | "not_drawn" | "cancelled";
        /** @description The visitor waits. */
        RoomProblem: {
            type: string;
            status: number;
            /** @description `room_` and the state. */
            error: string;
            message: string;
            /** @description The room's name. */
            room: string;
            state: components["schemas"]["RoomState"];
            /** @description 1 is next. */
            position?: number;
            /** @description Expected wait; absent: unknown. */
            wait_ms?: number;
            /** @description When the room opens. */
            opens_at_ms?: number;
            /** @description Repeat the request after this time. */
            poll_ms: number;
            /** @description The queue token, for x-weir-room. */
            pass?: string;
        };
        /**
         * @description `lobby`: opens at `opens_at_ms`; `hold`: called, waiting for capacity; `unplaced`: no position yet; `full`, `closed`, `address`: no new positions.
         * @enum {string}
         */
        RoomState: "waiting" | "lobby" | "hold" | "unplaced" | "full" | "closed" | "address";
        /** @description A position; only `state` without a queue token. */
        RoomStatus: {
            room?: string;
            /** @description As RoomState, or why there is no position. */
            state: string;
            position?: number;
            wait_ms?: number;
            opens_at_ms?: number;
            poll_ms?: number;
            /** @description The texts of the room's page. */
            text?: {
                title?: string;
                message?: string;
                position?: string;
                wait?: string;
            };
        };
        /**
         * @description State of a sale.
         * @enum {string}
         */
        SaleStage: "scheduled" | "running" | "sold_out" | "ended" | "closed" | "draining" | "paused";
        /** @description The state of a sale. */
        SaleStatus: {
            /** @description Its id. */
            id: string;
            state: components["schemas"]["SaleStage"];
            /** @description Start time, in milliseconds since the Unix epoch. */
            starts_at_ms: number;
            /** @description End time (exclusive). */
            ends_at_ms: number;
            /** @description The gateway's time, for countdowns. */
            now_ms: number;
            remaining: components["schemas"]["Band"];
            /** @description Whether buyers need a reservation. */
            reservation: boolean;
            /** @description Whether orders need an order token. */
            token: boolean;
        };
        /** @description One error in a body. */
        ValidationError: {
            /** @description Description of the error. */
            detail: string;
            /** @description Location: a JSON Pointer (RFC 6901). */
            pointer: string;
        };
        /** @description A period, including its start and excluding its end. */
        Window: {
            /**
             * Format: int64
             * @description Start, in milliseconds since the Unix epoch.
             */
            from_ms: number;
            /**
             * Format: int64
             * @description End (exclusive), in milliseconds since the Unix epoch.
             */
            until_ms: number;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    getRoomPosition: {
        parameters: {
            query?: never;
            header?: {
                /** @description The queue token; or its cookie. */
                "x-weir-room"?: string;
            };
            path: {
                /** @description The room's name. */
                room: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The position */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RoomStatus"];
                };
            };
        };
    };
    collectEvents: {
        parameters: {
            query?: {
                /** @description The write key; or the header x-weir-write-key. */
                key?: string;
                /** @description The visitor's consent; or the header x-weir-consent. */
                consent?: "full" | "anonymous" | "none";
                /** @description The visitor, for sampling; or the header x-weir-visitor. */
                visitor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["EventBody"];
            };
        };
        responses: {
            /** @description One verdict per event; all are stored, in the log or as dead letters */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EventAnswer"];
                };
            };
            /** @description `bad_consent`; `bad_query`; `invalid_body`: The body cannot be read; `errors` lists all mistakes; `invalid_query`: The query cannot be read, or a value in it is out of range; `invalid_user`: The user id is invalid */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unknown_key`: There is no such key */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `origin_not_allowed` */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `events_off`: Events are not enabled */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `method_not_allowed` */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `length_required` */
            411: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `body_too_large`: The body is larger than this route accepts; `too_large` */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `content_type`: The route does not accept this content type; `unsupported_media_type` */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `rate_limited`: Too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `events_full`: The event log is full; `events_refused`: The log refused the events; nothing was stored; `events_unknown`: The outcome is unknown; send the events again, they count once; `overloaded`: Too many requests are waiting; nothing was done; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    checkFitment: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["FitmentCheck"];
            };
        };
        responses: {
            /** @description The answer for each pair, in the order of the query */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FitmentAnswers"];
                };
            };
            /** @description `invalid_body`: The body cannot be read; `errors` lists all mistakes */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `fitment_off`: Vehicle fitment is not enabled */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `body_too_long`: The body is longer than this route accepts */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `invalid_sku`: The SKU is invalid; `invalid_sku_count`: The query has too few or too many SKUs; `invalid_spu`: The SPU is invalid; `invalid_vehicle`: The vehicle is invalid; `invalid_vehicle_count`: The query has too few or too many vehicles */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `fitment_unavailable`: Fitment is temporarily unavailable; `overloaded`: Too many requests are waiting; nothing was done; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    getGarage: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The vehicles */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Garage"];
                };
            };
            /** @description `user_missing`: The request has no user signed by a gateway */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `fitment_off`: Vehicle fitment is not enabled; `no_route`: There is no such path */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `rate_limited`: Too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `fitment_unavailable`: Fitment is temporarily unavailable; `overloaded`: Too many requests are waiting; nothing was done; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    addToGarage: {
        parameters: {
            query?: {
                /** @description Whether it becomes the default. */
                default?: boolean;
            };
            header?: never;
            path: {
                /** @description The number of the vehicle. */
                vehicle: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The vehicle is in the garage */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `invalid_query`: The query cannot be read, or a value in it is out of range */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `user_missing`: The request has no user signed by a gateway */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `fitment_off`: Vehicle fitment is not enabled; `no_route`: There is no such path; `unknown_vehicle`: There is no such vehicle */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `garage_full`: A garage has at most 20 vehicles */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `invalid_vehicle`: The vehicle is invalid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `rate_limited`: Too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `fitment_unavailable`: Fitment is temporarily unavailable; `overloaded`: Too many requests are waiting; nothing was done; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    removeFromGarage: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The number of the vehicle. */
                vehicle: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The vehicle is not in the garage */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `user_missing`: The request has no user signed by a gateway */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `fitment_off`: Vehicle fitment is not enabled; `no_route`: There is no such path; `unknown_vehicle`: There is no such vehicle */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `invalid_vehicle`: The vehicle is invalid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `rate_limited`: Too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `fitment_unavailable`: Fitment is temporarily unavailable; `overloaded`: Too many requests are waiting; nothing was done; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listFittingSkus: {
        parameters: {
            query: {
                /** @description Seven digits. */
                vehicle: string;
                /** @description The `next` of the previous page. */
                after?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of parts */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FitmentPage"];
                };
            };
            /** @description `invalid_query`: The query cannot be read, or a value in it is out of range */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `fitment_off`: Vehicle fitment is not enabled; `unknown_vehicle`: There is no such vehicle */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `invalid_after`: `after` is not the `next` of an earlier page; `invalid_vehicle`: The vehicle is invalid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `fitment_unavailable`: Fitment is temporarily unavailable; `overloaded`: Too many requests are waiting; nothing was done; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listHistory: {
        parameters: {
            query?: {
                /** @description Maximum number of entries. */
                limit?: number;
                /** @description Only views before `<ms>`, or after the item `<ms>,<sku>`: the `next` of the previous page. */
                before?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HistoryPage"];
                };
            };
            /** @description `invalid_query`: The query cannot be read, or a value in it is out of range */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `user_missing`: The request has no user signed by a gateway */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `history_off`: This origin has no browse history */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `invalid_query`: The query cannot be read, or a value in it is out of range */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `rate_limited`: Too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `overloaded`: Too many requests are waiting; nothing was done; `redis_unavailable`: Redis did not answer; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    clearHistory: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done; Redis is updated when it answers again */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Done */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `invalid_query`: The query cannot be read, or a value in it is out of range */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `user_missing`: The request has no user signed by a gateway */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `history_off`: This origin has no browse history */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `invalid_query`: The query cannot be read, or a value in it is out of range */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `rate_limited`: Too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `overloaded`: Too many requests are waiting; nothing was done; `redis_unavailable`: Redis did not answer; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    countHistory: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description So many */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HistoryCount"];
                };
            };
            /** @description `invalid_query`: The query cannot be read, or a value in it is out of range */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `user_missing`: The request has no user signed by a gateway */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `history_off`: This origin has no browse history */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `invalid_query`: The query cannot be read, or a value in it is out of range */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `rate_limited`: Too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `overloaded`: Too many requests are waiting; nothing was done; `redis_unavailable`: Redis did not answer; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    deleteFromHistory: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["HistoryDelete"];
            };
        };
        responses: {
            /** @description Done; Redis is updated when it answers again */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Done */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `invalid_body`: The body cannot be read; `errors` lists all mistakes; `invalid_query`: The query cannot be read, or a value in it is out of range */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `user_missing`: The request has no user signed by a gateway */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `history_off`: This origin has no browse history */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many_deletions`: The list has the maximum number of deletions */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `body_too_large`: The body is larger than this route accepts */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `invalid_query`: The query cannot be read, or a value in it is out of range; `invalid_sku`: The SKU is invalid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `rate_limited`: Too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `overloaded`: Too many requests are waiting; nothing was done; `redis_unavailable`: Redis did not answer; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    joinHistory: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["HistoryJoin"];
            };
        };
        responses: {
            /** @description The result */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HistoryJoined"];
                };
            };
            /** @description `invalid_body`: The body cannot be read; `errors` lists all mistakes; `invalid_query`: The query cannot be read, or a value in it is out of range */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `user_missing`: The request has no user signed by a gateway */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `history_off`: This origin has no browse history */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `body_too_large`: The body is larger than this route accepts */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `invalid_query`: The query cannot be read, or a value in it is out of range; `invalid_visitor`: The visitor id is invalid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `rate_limited`: Too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `history_unavailable`: The list is temporarily not available; `overloaded`: Too many requests are waiting; nothing was done; `redis_unavailable`: Redis did not answer; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    deleteFromHistoryBySku: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The SKU. */
                sku: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done; Redis is updated when it answers again */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Done */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description `invalid_query`: The query cannot be read, or a value in it is out of range */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `user_missing`: The request has no user signed by a gateway */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `history_off`: This origin has no browse history */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `too_many_deletions`: The list has the maximum number of deletions */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `invalid_query`: The query cannot be read, or a value in it is out of range; `invalid_sku`: The SKU is invalid */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `rate_limited`: Too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `overloaded`: Too many requests are waiting; nothing was done; `redis_unavailable`: Redis did not answer; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listMyOrders: {
        parameters: {
            query?: {
                /** @description Maximum number of orders. */
                limit?: number;
                /** @description The `next` of the previous page. */
                after?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OwnOrders"];
                };
            };
            /** @description `invalid_query`: The query cannot be read, or a value in it is out of range */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `user_missing`: The request has no user signed by a gateway */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `rate_limited`: Too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `overloaded`: Too many requests are waiting; nothing was done; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    getOrder: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The order's id. */
                order: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The order, with its last payment */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PaidOrder"];
                };
            };
            /** @description `user_missing`: The request has no user signed by a gateway */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unknown_order`: There is no such order */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `rate_limited`: Too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `overloaded`: Too many requests are waiting; nothing was done; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    cancelOrder: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The order's id. */
                order: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The order is cancelled */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Order"];
                };
            };
            /** @description `user_missing`: The request has no user signed by a gateway */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unknown_order`: There is no such order */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `order_expired`: The time to pay has passed; `order_paid`: The order is paid */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `rate_limited`: Too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `overloaded`: Too many requests are waiting; nothing was done; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    startPayment: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The order's id. */
                order: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The payment existed already */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Payment"];
                };
            };
            /** @description A new payment */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Payment"];
                };
            };
            /** @description `user_missing`: The request has no user signed by a gateway */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unknown_order`: There is no such order */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `order_cancelled`: The order was cancelled; `order_expired`: The time to pay has passed; `order_paid`: The order is paid; `sold_out`: There are no units left */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `rate_limited`: Too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `payments_not_configured`: This origin has no payment provider: WEIR_PAYMENT_SECRET is not set */
            501: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `overloaded`: Too many requests are waiting; nothing was done; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listPublicSales: {
        parameters: {
            query?: {
                /** @description The `next` of the previous page. */
                after?: string;
                /** @description Maximum number of entries. */
                limit?: number;
                /** @description Only sales of this tenant. Default: all. */
                tenant?: string;
                /** @description Only sales of this SKU. */
                sku?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PublicSales"];
                };
            };
            /** @description `invalid_query`: The query cannot be read, or a value in it is out of range */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `overloaded`: Too many requests are waiting; nothing was done; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    getSaleStatus: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The sale's id. */
                sale: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The state */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SaleStatus"];
                };
            };
            /** @description `unknown_sale`: There is no such sale */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `rate_limited`: Too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unavailable`: Redis or the origin did not answer */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    getOrderToken: {
        parameters: {
            query?: never;
            header?: {
                /** @description `<text>:<number>` whose SHA-256 starts with `bits` zero bits. */
                "x-weir-solution"?: string;
                /** @description The CAPTCHA's result. */
                "x-weir-captcha"?: string;
            };
            path: {
                /** @description The sale's id. */
                sale: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The token */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OrderToken"];
                };
            };
            /** @description `invalid_user`: The user id is invalid */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `blocked`: The user is blocked in this sale; `challenge_required`: The sale requires a solved challenge; `closed`: The sale is closed; `draining`: the origin is stopping: it still answers requests, but gateways and load balancers must send no new ones; `not_started`: The sale has not started yet */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unknown_sale`: There is no such sale */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `all_reserved`: All units are reserved; one may become free; `sold_out`: There are no units left */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `ended`: The sale is over */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `rate_limited`: Too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `misconfigured`: The gateway's claim key is not known to the origin; `overloaded`: Too many requests are waiting; nothing was done; `paused`: SQL has lost orders of the sale, and no operator has decided yet; `static_page`: The sale shows only its static page; `unavailable`: Redis or the origin did not answer */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    getDraw: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The sale's id. */
                sale: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The draw */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Draw"];
                };
            };
            /** @description `no_draw`: There is no such sale, or it has no draw; `unknown_sale`: There is no such sale */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `overloaded`: Too many requests are waiting; nothing was done; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listDrawEntries: {
        parameters: {
            query?: {
                /** @description The last ticket of the previous page. */
                after?: string;
                /** @description Maximum number of entries. */
                limit?: number;
            };
            header?: never;
            path: {
                /** @description The sale's id. */
                sale: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The tickets */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
            /** @description `invalid_query`: The query cannot be read, or a value in it is out of range */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_draw`: There is no such sale, or it has no draw; `unknown_sale`: There is no such sale */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `draw_open`: Reservations are still open, so the list of the draw is not final */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `overloaded`: Too many requests are waiting; nothing was done; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    order: {
        parameters: {
            query?: never;
            header?: {
                /** @description The same key returns the same order. */
                "Idempotency-Key"?: string;
                /** @description Units: all or none. */
                "x-weir-quantity"?: number;
                /** @description The checkout's token, if the sale needs one. */
                "x-weir-order-token"?: string;
                /** @description The link click that led to the order. */
                "x-weir-click"?: string;
            };
            path: {
                /** @description The sale's id. */
                sale: string;
            };
            cookie?: never;
        };
        /** @description JSON that matches the sale's payload_schema, at most 8 KiB. A sale without a schema accepts any body and does not store it. */
        requestBody?: {
            content: {
                "application/json": components["schemas"]["OrderPayload"];
            };
        };
        responses: {
            /** @description The order existed already */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Order"];
                };
            };
            /** @description The order is created */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Order"];
                };
            };
            /** @description `invalid_body`: The body cannot be read; `errors` lists all mistakes; `invalid_idempotency_key`: The Idempotency-Key is invalid; `invalid_quantity`: The header x-weir-quantity is not an integer of at least 1 */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `invalid_user`: The user id is invalid */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `barred`: The user is blocked or has no reservation; `blocked`: The user is blocked in this sale; `challenge_required`: The sale requires a solved challenge; `closed`: The sale is closed; `draining`: the origin is stopping: it still answers requests, but gateways and load balancers must send no new ones; `invalid_token`: The order token is missing or invalid; `not_reserved`: The user has no reservation; `not_started`: The sale has not started yet; `token_too_young`: The order token is not valid yet; `unpaid_holds`: The user did not pay several orders in time */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unknown_sale`: There is no such sale */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `all_reserved`: All units are reserved; one may become free; `cap_reached`: The user has reached the limit per user; `claim_released`: The claim has expired and its units are released; order again; `group_cap`: The order would exceed the limit per user of the sale's group; `in_progress`: Another request of this buyer is in progress; `sku_in_sale`: The ordered SKU is part of a sale; `sold_out`: There are no units left; `too_few`: Fewer units are left than requested; `unknown_sale`: There is no such sale; `user_cap`: The user has reached the limit per user */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `ended`: The sale is over */
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `idempotency_key_reused`: The Idempotency-Key was used for a different request; `invalid_payload`: The order's body does not match the sale's payload_schema; `errors` lists all mistakes */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `cooling_down`: The user did not pay an order in time and has to wait; `rate_limited`: Too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `misconfigured`: The gateway's claim key is not known to the origin; `overloaded`: Too many requests are waiting; nothing was done; `paused`: SQL has lost orders of the sale, and no operator has decided yet; `sql_unavailable`: The database did not answer; `static_page`: The sale shows only its static page; `timeout`: Timeout; the outcome is unknown; `unavailable`: Redis or the origin did not answer */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unavailable`: Redis or the origin did not answer */
            504: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    getReservation: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The sale's id. */
                sale: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The reservation */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Reservation"];
                };
            };
            /** @description `user_missing`: The request has no user signed by a gateway */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unknown_reservation`: The user has no reservation for this sale; `unknown_sale`: There is no such sale */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `rate_limited`: Too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `overloaded`: Too many requests are waiting; nothing was done; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    createReservation: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The sale's id. */
                sale: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The reservation existed already */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Reservation"];
                };
            };
            /** @description Reserved */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Reservation"];
                };
            };
            /** @description `user_missing`: The request has no user signed by a gateway */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `blocked`: The user is blocked in this sale */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unknown_sale`: There is no such sale */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `no_reservation`: The sale needs no reservation; `reservation_closed`: Reservations have ended; `reservation_not_open`: Reservations have not started yet; `unknown_reservation`: The user has no reservation for this sale */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `rate_limited`: Too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `overloaded`: Too many requests are waiting; nothing was done; `redis_unavailable`: Redis did not answer; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    cancelReservation: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The sale's id. */
                sale: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The reservation is removed */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Reservation"];
                };
            };
            /** @description `user_missing`: The request has no user signed by a gateway */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `unknown_sale`: There is no such sale */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `reservation_closed`: Reservations have ended */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `rate_limited`: Too many requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description `overloaded`: Too many requests are waiting; nothing was done; `redis_unavailable`: Redis did not answer; `sql_unavailable`: The database did not answer; `timeout`: Timeout; the outcome is unknown */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
}
