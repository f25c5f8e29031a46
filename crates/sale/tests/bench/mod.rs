//! A host and a fake Redis for one gate: the host applies effects, and Redis answers each claim as instructed.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use weir_base::resp::{Value, decode};
use weir_base::shared_data::LocalData;
use weir_engine::config::parse;
use weir_engine::event::FetchResponse;
use weir_engine::event::{PlainEnd, PlainRequest};
use weir_engine::redis::UnknownFailure;
use weir_engine::{
    BatchId, EarlyDecision, Effect, Effects, Engine, Event, Fetch, FetchId, Headers, Level,
    Request, StreamId,
};
use weir_sale::engine::{Config, Gate};
use weir_sale::redis::{challenge_spend, claim, deposit, lend, probe, release};
use weir_scripts::tally;

pub const NOW_MS: u64 = 1_700_000_000_000;

/// The claim key's secret.
pub const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

pub const CATALOGUE: &str = r#"{"sales":[{"id":"s","starts_at_ms":1,"ends_at_ms":9000000000000,"shards":1,"user_cap":1,"state":"open"}]}"#;

/// Redis' reply to each user of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Granted,
    Blocked,
    CapReached,
    /// The attempt is an order, with generation 7.
    Ordered,
    InProgress,
    Draining,
    Empty,
    Cold,
    /// Invalid bytes.
    Damaged,
    /// No reply: the connection fails, and nothing has run.
    Lost,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Answered(u16),
    WentOn,
}

pub struct Bench {
    gate: Gate<Rc<LocalData>>,
    effects: Effects,
    now_ms: u64,
    /// Calls without a reply.
    sent: VecDeque<(BatchId, Vec<Vec<Vec<u8>>>)>,
    /// HTTP requests without a response.
    pub fetches: VecDeque<(FetchId, Fetch)>,
    /// When the tokens of solutions were minted, by key.
    spent: BTreeMap<Vec<u8>, Vec<u8>>,
    needs_turn: bool,
    applied: Vec<Effect>,
    outcomes: BTreeMap<StreamId, Outcome>,
    closed: BTreeSet<StreamId>,
    generations: u64,
    pub catalogue: String,
    /// Streams that have ended without an event.
    pub disconnected: BTreeSet<StreamId>,
    pub is_down: bool,
    /// The stock of each shard in probes; probes fail while it is empty.
    pub stocks: Vec<i64>,
    pub calls: usize,
    pub granted: usize,
    pub went_on: usize,
    /// The number of released deliveries in Redis.
    pub handed_back: usize,
    /// The number of deposits in Redis.
    pub deposits: usize,
    pub warnings: usize,
    /// Reports for operators: the words of each name, and its count.
    pub reported: BTreeMap<String, u64>,
    /// The collected counters of the gate, by index.
    counted: BTreeMap<usize, usize>,
    pub most_answers_in_an_event: usize,
}

/// A request, and the name of the host's selected route.
struct RoutedRequest(PlainRequest, Option<&'static str>);

impl Request for RoutedRequest {
    fn headers(&self) -> &Headers {
        self.0.headers()
    }

    fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.0.header(name)
    }

    fn peer_address(&self) -> Vec<u8> {
        self.0.peer_address()
    }

    fn now_ms(&self) -> u64 {
        self.0.now_ms()
    }

    fn route_name(&self) -> Option<Vec<u8>> {
        self.1.map(|name| name.as_bytes().to_vec())
    }
}

impl Bench {
    /// A gate without any reply from Redis.
    pub fn new() -> Self {
        Self::configured("")
    }

    /// Like [`Bench::new`], with more configuration.
    pub fn early(more: &str) -> Self {
        Self::configured(more)
    }

    /// A gate with its sale in the catalogue.
    pub fn open() -> Self {
        Self::with("")
    }

    /// Like [`Bench::open`], with more configuration.
    pub fn with(more: &str) -> Self {
        let mut bench = Self::configured(more);
        bench.turn();
        bench.run(Reply::Granted);
        bench
    }

    /// Like [`Bench::open`], for a gate whose orders must use the host route with this name.
    pub fn with_route(name: &str) -> Self {
        let mut bench = Self::early_with_route(name);
        bench.turn();
        bench.run(Reply::Granted);
        bench
    }

    /// The same, before any reply from Redis.
    pub fn early_with_route(name: &str) -> Self {
        Self::of_routes(&format!(r#", "envoy_route": "{name}""#), "")
    }

    fn configured(more: &str) -> Self {
        Self::of_routes("", more)
    }

    fn of_routes(more_of_route: &str, more: &str) -> Self {
        let json = format!(
            r#"{{ "routes": [{{ "path": "/sales/{{sale}}/orders"{more_of_route} }}], "user_header": "x-user-id",
                "claim": {{ "keys": [{{ "secret": {{ "env": "S" }} }}] }}, "redis": {{}}{more} }}"#
        );
        let secret = |_: &str| Some(SECRET.to_vec());
        let config = parse::<Config>(json.as_bytes()).unwrap();
        let config = config.checked(&secret).unwrap();
        Self {
            gate: Gate::new(config, &Rc::new(LocalData::default())),
            effects: Effects::new(),
            now_ms: NOW_MS,
            sent: VecDeque::new(),
            fetches: VecDeque::new(),
            spent: BTreeMap::new(),
            needs_turn: false,
            applied: vec![],
            outcomes: BTreeMap::new(),
            closed: BTreeSet::new(),
            generations: 0,
            catalogue: CATALOGUE.into(),
            disconnected: BTreeSet::new(),
            is_down: false,
            stocks: vec![],
            calls: 0,
            granted: 0,
            went_on: 0,
            handed_back: 0,
            deposits: 0,
            warnings: 0,
            reported: BTreeMap::new(),
            counted: BTreeMap::new(),
            most_answers_in_an_event: 0,
        }
    }

    pub fn request(&mut self, stream: StreamId, method: &str, path: &str, more: &[(&str, &str)]) {
        self.request_from("192.0.2.1", stream, method, path, more);
    }

    pub fn request_from(
        &mut self,
        address: &str,
        stream: StreamId,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
    ) {
        let mut headers = vec![(":method", method), (":path", path)];
        headers.extend(more);
        let request = PlainRequest {
            headers: Headers::new(&headers),
            peer_address: format!("{address}:4711").into_bytes(),
            now_ms: self.now_ms,
        };
        self.handle(Event::Request {
            stream,
            request: &request,
        });
    }

    /// The gate's decision before the host's HTTP stack.
    pub fn decide_early(
        &mut self,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        trusts_user: bool,
    ) -> EarlyDecision {
        let mut headers = vec![(":method", method), (":path", path)];
        headers.extend(more);
        let request = PlainRequest {
            headers: Headers::new(&headers),
            peer_address: b"192.0.2.1:4711".to_vec(),
            now_ms: self.now_ms,
        };
        self.gate.decide_early(&request, trusts_user)
    }

    pub fn buy(&mut self, stream: StreamId, user: &str) {
        self.request(stream, "POST", "/sales/s/orders", &[("x-user-id", user)]);
    }

    /// Like [`Bench::buy`], with this host route.
    pub fn buy_by(&mut self, stream: StreamId, user: &str, route: Option<&'static str>) {
        let headers = [
            (":method", "POST"),
            (":path", "/sales/s/orders"),
            ("x-user-id", user),
        ];
        let request = PlainRequest {
            headers: Headers::new(&headers),
            peer_address: b"192.0.2.1:4711".to_vec(),
            now_ms: self.now_ms,
        };
        self.handle(Event::Request {
            stream,
            request: &RoutedRequest(request, route),
        });
    }

    /// Makes the gate find that its sale with one shard is sold out.
    pub fn sell_out(&mut self) {
        self.empty("none");
        assert!(self.answer(u32::MAX).1.contains("sold_out"));
    }

    /// Makes a buyer find no unit in Redis, for its sale with one shard, while the catalogue contains `band`.
    pub fn empty(&mut self, band: &str) {
        self.stocks = vec![0];
        self.publish_band(band);
        self.advance(700);
        self.run(Reply::Empty);
        self.buy(u32::MAX, "latecomer");
        self.run(Reply::Empty);
    }

    /// Sets the catalogue's `band` from the next poll on.
    pub fn publish_band(&mut self, band: &str) {
        let band = format!("\"band\":\"{band}\",\"state\"");
        self.catalogue = match self.catalogue.find("\"band\"") {
            None => self.catalogue.replace("\"state\"", &band),
            Some(_) => self
                .catalogue
                .replace("\"band\":\"reserved\",\"state\"", &band),
        };
    }

    pub fn close(&mut self, stream: StreamId) {
        self.close_with(stream, Some(200));
    }

    pub fn close_with(&mut self, stream: StreamId, response_status: Option<u16>) {
        if self.closed.insert(stream) {
            let now_ms = self.now_ms;
            let end = PlainEnd {
                response_status,
                now_ms,
            };
            self.handle(Event::Closed { stream, end: &end });
        }
    }

    /// Ends the stream without an event.
    pub fn leave(&mut self, stream: StreamId) {
        if !self.outcomes.contains_key(&stream) {
            self.disconnected.insert(stream);
        }
    }

    /// Runs turns of the event loop until none is requested.
    pub fn send(&mut self) {
        while std::mem::take(&mut self.needs_turn) {
            self.turn();
        }
    }

    fn turn(&mut self) {
        let now_ms = self.now_ms;
        self.handle(Event::Tick { now_ms });
    }

    /// Advances the time, with a tick at the end.
    pub fn advance(&mut self, ms: u64) {
        self.now_ms += ms;
        self.turn();
        self.send();
        while self
            .sent
            .front()
            .is_some_and(|(_, commands)| is_poll(commands))
        {
            self.answer_oldest(Reply::Granted);
        }
    }

    /// Advances the time, and leaves a poll pending.
    pub fn send_poll(&mut self, ms: u64) {
        self.now_ms += ms;
        self.turn();
        self.send();
    }

    /// Answers all calls until no event is pending.
    pub fn run(&mut self, reply: Reply) {
        self.send();
        while !self.sent.is_empty() {
            self.answer_oldest(reply);
            self.send();
        }
    }

    /// Redis answers the oldest call.
    pub fn answer_oldest(&mut self, reply: Reply) {
        let Some((batch, commands)) = self.sent.pop_front() else {
            return;
        };
        let now_ms = self.now_ms;
        let is_lost = reply == Reply::Lost && commands.iter().all(|words| is_claim(words));
        let reply = match is_lost {
            true => Err(UnknownFailure::Lost.into()),
            false => Ok(commands
                .iter()
                .flat_map(|words| self.reply_to(words, reply))
                .collect()),
        };
        self.handle(Event::RedisReply {
            batch,
            reply,
            now_ms,
        });
    }

    /// Redis refuses each command of the oldest call.
    pub fn refuse_oldest(&mut self, error: &str) {
        let now_ms = self.now_ms;
        if let Some((batch, commands)) = self.sent.pop_front() {
            let reply = format!("-{error}\r\n").repeat(commands.len());
            self.handle(Event::RedisReply {
                batch,
                reply: Ok(reply.into_bytes()),
                now_ms,
            });
        }
    }

    /// Loses the oldest call.
    pub fn lose_oldest(&mut self) {
        let now_ms = self.now_ms;
        if let Some((batch, _)) = self.sent.pop_front() {
            let reply = Err(UnknownFailure::Lost.into());
            self.handle(Event::RedisReply {
                batch,
                reply,
                now_ms,
            });
        }
    }

    /// Redis runs the oldest call, and its reply is lost.
    pub fn lose_reply(&mut self) {
        if let Some((_, commands)) = self.sent.front().cloned() {
            for words in &commands {
                self.reply_to(words, Reply::Granted);
            }
        }
        self.lose_oldest();
    }

    /// Answers the oldest HTTP request with this status and body, or fails it.
    pub fn fetched(&mut self, answer: Option<(u16, &str)>) {
        let (fetch, _) = self.fetches.pop_front().unwrap();
        let response = answer.map(|(status, body)| FetchResponse {
            status,
            headers: vec![],
            body: body.as_bytes().to_vec(),
        });
        let now_ms = self.now_ms;
        self.handle(Event::FetchDone {
            fetch,
            response,
            now_ms,
        });
    }

    fn reply_to(&mut self, words: &[Vec<u8>], reply: Reply) -> Vec<u8> {
        if is_claim(words) {
            return self.claim_reply(&users_of(words), reply);
        }
        if is_script(words, &challenge_spend::SCRIPT) {
            return self.spend_reply(words);
        }
        if is_script(words, &release::SCRIPT) {
            // Three words per delivery: user, generation, number.
            let keys: usize = text(&words[2]).parse().unwrap();
            self.handed_back += (words.len() - 3 - keys) / 4;
        }
        if is_script(words, &probe::SCRIPT) && !self.stocks.is_empty() {
            return self.probe_reply(words);
        }
        if is_script(words, &lend::SCRIPT) {
            // A transfer with the id 5 and 2 units.
            return b"*3\r\n:1\r\n:5\r\n:2\r\n".to_vec();
        }
        if is_script(words, &deposit::SCRIPT) {
            self.deposits += 1;
            return b":1\r\n".to_vec();
        }
        if words[1] == tally::SCRIPT.source.as_bytes() {
            for pair in words[6..].chunks(2) {
                let name = tally::words(&text(&pair[0])).join(" | ");
                *self.reported.entry(name).or_default() += text(&pair[1]).parse::<u64>().unwrap();
            }
            return b":0\r\n".to_vec();
        }
        match text(&words[0]).as_str() {
            "GET" if text(&words[1]).contains("catalogue") => bulk(&self.catalogue),
            "GET" => bulk("1"),
            // All other replies: unknown, which is always possible.
            _ => b"-ERR not here\r\n".to_vec(),
        }
    }

    fn spend_reply(&mut self, words: &[Vec<u8>]) -> Vec<u8> {
        let keys: usize = text(&words[2]).parse().unwrap();
        let (keys, args) = words[3..].split_at(keys);
        let mut reply = format!("*{}\r\n", keys.len()).into_bytes();
        for (key, args) in keys.iter().zip(args.chunks(2)) {
            let time = self.spent.entry(key.clone()).or_insert(args[0].clone());
            reply.extend(bulk(&text(time)));
        }
        reply
    }

    fn probe_reply(&self, words: &[Vec<u8>]) -> Vec<u8> {
        // Four keys per shard.
        let keys: usize = text(&words[2]).parse().unwrap();
        let shards = words[3..3 + keys].chunks(4);
        let mut reply = format!("*{}\r\n", shards.len());
        for keys in shards {
            let is_its = |shard: &usize| text(&keys[0]).contains(&format!("{{s:{shard}}}"));
            let stock = self.stocks[(0..).find(is_its).unwrap()];
            // Epoch 1, no open claim, no transfer.
            reply += &format!("*4\r\n:{stock}\r\n:1\r\n:0\r\n:0\r\n");
        }
        reply.into_bytes()
    }

    fn claim_reply(&mut self, users: &[(String, u32)], reply: Reply) -> Vec<u8> {
        let deadline_ms = self.now_ms + 30_000;
        let mut one = |(_, quantity): &(String, u32)| match reply {
            Reply::Granted => {
                self.granted += 1;
                self.generations += 1;
                format!("1 {} {quantity} {deadline_ms} 0", self.generations)
            }
            Reply::CapReached => "3 7".into(),
            Reply::Ordered => "9 7 1".into(),
            Reply::InProgress => "10".into(),
            Reply::Draining => "8".into(),
            Reply::Empty => "4 1 0".into(),
            Reply::Cold => "5".into(),
            Reply::Blocked => "6".into(),
            Reply::Damaged | Reply::Lost => "damaged".into(),
        };
        let answers: Vec<String> = users.iter().map(&mut one).collect();
        bulk(&answers.join(","))
    }

    // --- the host

    fn handle(&mut self, event: Event<'_>) {
        self.gate.handle(event, &mut self.effects);
        let outcomes = self.outcomes.len();
        let mut feedback = self.apply();
        while let Some(event) = feedback.pop_front() {
            self.gate.handle(event, &mut self.effects);
            feedback.extend(self.apply());
        }
        let answers = self.outcomes.len() - outcomes;
        self.most_answers_in_an_event = self.most_answers_in_an_event.max(answers);
    }

    fn apply(&mut self) -> VecDeque<Event<'static>> {
        let mut list = vec![];
        self.effects.take_into(&mut list);
        let mut feedback = VecDeque::new();
        let mut undelivered = BTreeSet::new();
        for effect in list {
            if let Some(stream) = stream_of(&effect)
                && self.disconnected.contains(&stream)
            {
                if undelivered.insert(stream) {
                    let now_ms = self.now_ms;
                    feedback.push_back(Event::Undelivered { stream, now_ms });
                }
                continue;
            }
            feedback.extend(self.apply_one(&effect));
            self.applied.push(effect);
        }
        self.effects.clear_bytes();
        feedback
    }

    fn apply_one(&mut self, effect: &Effect) -> Option<Event<'static>> {
        match effect {
            Effect::Call {
                batch,
                at_once: true,
                ..
            } if self.is_down => {
                return Some(Event::Deferred { batch: *batch });
            }
            Effect::Call { batch, .. } if self.is_down => {
                return Some(Event::NotSent { batch: *batch });
            }
            Effect::Call { batch, body, .. } => {
                self.calls += 1;
                let commands = commands(self.effects.bytes(body));
                self.sent.push_back((*batch, commands));
            }
            Effect::Respond { stream, answer } => {
                self.settle(*stream, Outcome::Answered(answer.status));
            }
            Effect::Continue { stream, .. } => {
                self.went_on += 1;
                self.settle(*stream, Outcome::WentOn);
            }
            Effect::Fetch { id, fetch } => self.fetches.push_back((*id, fetch.clone())),
            Effect::Wake => self.needs_turn = true,
            Effect::Log(Level::Warn | Level::Error, _) => self.warnings += 1,
            _ => {}
        }
        None
    }

    fn settle(&mut self, stream: StreamId, outcome: Outcome) {
        assert!(!self.closed.contains(&stream), "{stream} has ended");
        let before = self.outcomes.insert(stream, outcome);
        assert_eq!(before, None, "{stream} has two outcomes");
    }

    // --- results

    pub fn outcome(&self, stream: StreamId) -> Option<Outcome> {
        self.outcomes.get(&stream).copied()
    }

    pub fn is_closed_or_disconnected(&self, stream: StreamId) -> bool {
        self.closed.contains(&stream) || self.disconnected.contains(&stream)
    }

    pub fn effects_of(&self, stream: StreamId) -> impl Iterator<Item = &Effect> {
        let is_its = move |effect: &&Effect| stream_of(effect) == Some(stream);
        self.applied.iter().filter(is_its)
    }

    /// The status and the body of a stream's answer.
    pub fn answer(&self, stream: StreamId) -> (u16, String) {
        let answer = self.effects_of(stream).find_map(|effect| match effect {
            Effect::Respond { answer, .. } => Some((answer.status, text(&answer.body))),
            _ => None,
        });
        answer.unwrap_or_else(|| panic!("{stream} was not answered"))
    }

    /// A header of a stream's answer.
    pub fn answer_header(&self, stream: StreamId, name: &str) -> Option<String> {
        self.effects_of(stream).find_map(|effect| match effect {
            Effect::Respond { answer, .. } => {
                answer.headers.clone().get(name).map(|value| text(&value))
            }
            _ => None,
        })
    }

    pub fn added_headers(&self, stream: StreamId) -> Vec<(&'static str, String)> {
        let added = |effect: &Effect| match effect {
            Effect::AddRequestHeader { name, value, .. } => Some((*name, value.clone())),
            _ => None,
        };
        self.effects_of(stream).filter_map(added).collect()
    }

    /// The number of released deliveries by the gate's counter, whether Redis has received the releases or not.
    pub fn counted_as_handed_back(&mut self) -> usize {
        self.counted("claims_handed_back_total")
    }

    /// The value of a counter.
    pub fn counted(&mut self, subject: &str) -> usize {
        let metrics = self.gate.metrics();
        let name = format!("weir_seckill_gate_{subject}");
        let place = metrics.counters().position(|existing| existing == name);
        let place = place.unwrap_or_else(|| panic!("there is no {name}"));
        let counted = &mut self.counted;
        metrics.collect(|index, n| *counted.entry(index).or_default() += n as usize);
        self.counted.get(&place).copied().unwrap_or(0)
    }

    /// All nonzero counters of the gate.
    pub fn counts(&mut self) -> BTreeMap<String, usize> {
        let metrics = self.gate.metrics();
        let names: Vec<String> = metrics.counters().map(str::to_owned).collect();
        let counted = &mut self.counted;
        metrics.collect(|index, n| *counted.entry(index).or_default() += n as usize);
        let counts = self.counted.iter();
        let counts = counts.filter(|(_, count)| **count > 0);
        counts
            .map(|(index, count)| (names[*index].clone(), *count))
            .collect()
    }

    /// The gate's tick interval.
    pub fn tick_ms(&self) -> u64 {
        self.gate.tick_ms().unwrap()
    }

    /// Whether the gate tracks no stream.
    pub fn is_at_rest(&self) -> bool {
        self.gate.open_streams() == 0
    }
}

fn stream_of(effect: &Effect) -> Option<StreamId> {
    match effect {
        Effect::Respond { stream, .. }
        | Effect::RemoveRequestHeader { stream, .. }
        | Effect::AddRequestHeader { stream, .. }
        | Effect::SetPath { stream, .. }
        | Effect::Continue { stream, .. }
        | Effect::SetResponseHeader { stream, .. } => Some(*stream),
        _ => None,
    }
}

/// The words of each command in `body`.
fn commands(mut body: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let mut commands = vec![];
    while !body.is_empty() {
        let (value, used) = decode(body).unwrap();
        body = &body[used..];
        let Value::Array(words) = value else {
            panic!("{value:?}")
        };
        let word = |word: Value| match word {
            Value::Bulk(bytes) => bytes,
            other => panic!("{other:?}"),
        };
        commands.push(words.into_iter().map(word).collect());
    }
    commands
}

fn is_poll(commands: &[Vec<Vec<u8>>]) -> bool {
    commands.iter().all(|words| words[0] == b"GET")
}

fn is_script(words: &[Vec<u8>], script: &weir_scripts::Script) -> bool {
    words[0] == b"EVALSHA" && words[1] == script.sha1_hex().as_bytes()
}

fn is_claim(words: &[Vec<u8>]) -> bool {
    is_script(words, &claim::SCRIPT)
}

/// The users in a claim and their quantities: see `claim.lua` for its arguments.
fn users_of(words: &[Vec<u8>]) -> Vec<(String, u32)> {
    let keys: usize = text(&words[2]).parse().unwrap();
    let mut args = words[3 + keys..].iter();
    let groups: usize = text(args.next().unwrap()).parse().unwrap();
    let mut users = vec![];
    for _ in 0..groups {
        let [_ttl_ms, _cap, quantity, letters, buckets] = [(); 5].map(|()| args.next().unwrap());
        let count = buckets.len();
        let quantity = text(quantity).parse().unwrap();
        users.extend(args.by_ref().take(count).map(|user| (text(user), quantity)));
        let tags = if letters.contains(&b'k') { count } else { 0 };
        args.by_ref().take(tags).for_each(drop);
    }
    users
}

fn bulk(text: &str) -> Vec<u8> {
    format!("${}\r\n{text}\r\n", text.len()).into_bytes()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
