// Which view is shown (#/, #/topics/NAME, #/groups/NAME), and when it is brought up to date.

import { $, setClass, setText, show } from "./dom.js";
import { GroupView } from "./group.js";
import { Overview } from "./overview.js";
import { TopicView } from "./topic.js";

const EVERY_MS = 2000;
const SECOND_MS = 1000; // a rate needs two looks: the second comes soon
const PATIENCE_MS = 60_000;

const views = { overview: new Overview(), topic: new TopicView(), group: new GroupView() };
const scrolled = new Map();
let route, timer, polling, polls = 0;

class Unreachable extends Error {}

async function get(path) {
  try {
    const response = await fetch(path, { signal: AbortSignal.timeout(PATIENCE_MS) });
    return response.status === 404 ? undefined : await response.json();
  } catch (cause) {
    throw new Unreachable(path, { cause });
  }
}

function parsed() {
  const [kind, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  let name = rest.join("/");
  try { name = decodeURIComponent(name); } catch { /* it is taken as it stands */ }
  if (kind === "topics" && name) return { view: "topic", name };
  return kind === "groups" && name ? { view: "group", name } : { view: "overview", name: "" };
}

function navigate() {
  if (route) scrolled.set(route.hash, scrollY);
  const first = !route;
  route = { ...parsed(), hash: location.hash };
  for (const id of Object.keys(views)) show($(id), id === route.view);
  document.title = route.name ? `${route.name} · CairnMQ` : "CairnMQ";
  views[route.view].open?.(route.name, poll);
  scrollTo(0, scrolled.get(route.hash) ?? 0);
  if (!first) $(`${route.view}-name`)?.focus({ preventScroll: true });
  polls = 0;
  poll();
}

async function poll() {
  clearTimeout(timer);
  if (polling) { polling = "again"; return; }
  polling = "once";
  const started = performance.now();
  try {
    reached(await views[route.view].poll(get));
  } catch (error) {
    if (!(error instanceof Unreachable)) console.error(error);
    say("not reachable", true);
    setClass(document.body, "stale", true);
  }
  const again = polling === "again";
  polling = undefined;
  // A broker with very many topics takes a while: it is asked less often.
  const rest = Math.max(polls++ ? EVERY_MS : SECOND_MS, 4 * (performance.now() - started));
  clearTimeout(timer);
  if (again) poll();
  else if (!document.hidden) timer = setTimeout(poll, rest);
}

function reached(broker) {
  setClass(document.body, "stale", false);
  if (!broker) return;
  setText($("bootstrap"), broker.bootstrap ?? "");
  setText($("node"), broker.cluster_id ? `node ${broker.node_id} · cluster ${broker.cluster_id}` : "");
  setText($("version"), `CairnMQ ${broker.version}`);
  say(broker.ready ? "ready" : broker.reasons.join("; "), !broker.ready);
}

function say(text, bad) {
  setText($("state"), text);
  setClass($("state"), "bad", bad);
}

addEventListener("hashchange", navigate);
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
navigate();
