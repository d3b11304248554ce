// Shows /status.json, whose fields docs/reference/status.md describes, and polls it.
// Its texts may come from drivers, pods and devices, so they are set as textContent only, never as HTML.
"use strict";

const PAUSE = 2000; // milliseconds between two requests
const PATIENCE = 5000; // milliseconds until a request times out
const MOST_EVENTS = 50;
const MOST_DEVICES = 500; // of one resource, those that need a look first
const KINDS = ["free", "held", "unhealthy"];

const byId = (id) => document.getElementById(id);

function make(tag, text = "", kind = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  element.className = kind;
  return element;
}

function age(since, now) {
  if (!since) return "";
  let seconds = Math.max(0, Math.round((Date.parse(now) - Date.parse(since)) / 1000));
  const parts = [];
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]]) {
    if (seconds >= size || (unit === "s" && !parts.length)) parts.push(Math.floor(seconds / size) + unit);
    seconds %= size;
  }
  return parts.slice(0, 2).join(" ");
}

const since = (moment, now) => (moment ? `for ${age(moment, now)}, since ${moment}` : "");

// What is wrong

function showVerdict(status) {
  const errors = status.troubles.filter((one) => one.level === "error").length;
  const count = status.troubles.length;
  const level = errors ? "error" : count ? "warning" : "good";
  const resources = `${status.resources.length} resource${status.resources.length === 1 ? "" : "s"}`;
  say(level, count ? `${count} thing${count === 1 ? " is" : "s are"} wrong` : `Nothing is wrong with ${resources}`);
  byId("troubles").replaceChildren(...status.troubles.map((one) => trouble(one, status.time)));
}

function say(level, text) {
  if (byId("verdict").textContent !== text) byId("verdict").textContent = text; // a screen reader would repeat an equal text
  byId("verdict").className = level;
  document.title = `${level === "good" ? "" : "! "}dpgateway ${byId("node").textContent}`;
}

function trouble(one, now) {
  const item = make("li", "", one.level);
  const line = make("p");
  if (one.resource) line.append(make("b", one.resource));
  line.append(one.reason);
  item.append(line);
  if (one.advice) item.append(make("p", one.advice, "advice"));
  if (one.since) item.append(make("p", since(one.since, now), "faint"));
  return item;
}

// Resources

const sections = new Map(); // each resource's elements, by its name, kept so that an open section stays open

function showResources(status) {
  const names = new Set(status.resources.map((one) => one.name));
  for (const name of sections.keys()) if (!names.has(name)) sections.delete(name);
  const shown = status.resources.map((one) => section(one, status.time));
  const parent = byId("resources");
  if (shown.some((one, index) => one !== parent.children[index]) || shown.length !== parent.children.length)
    parent.replaceChildren(...shown);
}

function section(resource, now) {
  let details = sections.get(resource.name);
  if (!details) {
    details = make("details");
    details.append(make("summary"), make("div"));
    details.addEventListener("toggle", () => details.fill());
    sections.set(resource.name, details);
  }
  details.dataset.resource = resource.name;
  const sick = resource.counts.unhealthy > 0;
  if (sick && !details.sick) details.open = true;
  details.sick = sick;
  details.firstChild.replaceChildren(...summary(resource, now));
  details.fill = () => details.lastChild.replaceChildren(...(details.open ? [facts(resource, now), table(resource, now)] : []));
  details.fill();
  return details;
}

// A held device that is lost or Unhealthy counts as unhealthy here, because it needs attention
function kind(device) {
  return device.healthy ? (device.held ? "held" : "free") : "unhealthy";
}

function summary(resource, now) {
  const counts = { free: 0, held: 0, unhealthy: 0 };
  for (const device of resource.devices) counts[kind(device)] += 1;
  const both = resource.devices.filter((one) => one.held && !one.healthy).length;
  const text = KINDS.map((one) => `${counts[one]} ${one}`).join(", ") + (both ? `, ${both} of them held` : "");
  const bar = make("div", "", "bar");
  bar.setAttribute("role", "img");
  bar.setAttribute("aria-label", text);
  for (const one of KINDS) {
    const part = make("span", "", one);
    part.style.flexGrow = counts[one];
    bar.append(part);
  }
  return [make("span", resource.name, "name"), make("span", text, "counts"), bar];
}

function facts(resource, now) {
  const listed = resource.driver.listed ? `, asked ${age(resource.driver.listed, now)} ago` : "";
  const states = resource.registrations.map((one) => {
    const listens = one.streaming && one.front !== "dra";
    const state = listens ? `the kubelet listens, ${one.api}` : one.state;
    return `${state} for ${age(one.since, now)}`;
  });
  return make("p", `${states.join(", ")}; driver ${resource.driver.name}${listed}`, "faint");
}

function table(resource, now) {
  const whole = make("table");
  const head = make("tr");
  for (const name of ["device", "state", "for", "held by", "reason"]) head.append(make("th", name));
  const top = make("thead");
  top.append(head);
  const rows = make("tbody");
  const order = ["unhealthy", "held", "free"];
  const devices = [...resource.devices].sort((a, b) => order.indexOf(kind(a)) - order.indexOf(kind(b)));
  for (const device of devices.slice(0, MOST_DEVICES)) rows.append(row(device, now));
  const more = devices.length - MOST_DEVICES;
  if (more > 0) {
    const cell = make("td", `and ${more} more: dpgateway status ${resource.name}`);
    cell.colSpan = 5;
    rows.append(make("tr"));
    rows.lastChild.append(cell);
  }
  whole.append(top, rows);
  return whole;
}

function row(device, now) {
  const line = make("tr");
  line.dataset.device = device.id;
  const state = device.lost ? "gone" : device.healthy ? kind(device) : "Unhealthy";
  const holders = device.holders.map(holder).join(", ") || (device.held ? "a container" : "");
  line.append(
    make("td", device.id), make("td", state, kind(device)), make("td", age(device.since || device.held_since, now)),
    make("td", holders), make("td", device.reason || ""),
  );
  return line;
}

function holder(one) {
  if (one.claim) return one.pod ? `${one.namespace}/${one.pod} (claim ${one.claim})` : `claim ${one.namespace}/${one.claim}`;
  return `${one.pod ? `${one.namespace}/${one.pod}` : `pod ${one.pod_uid}`} (${one.container})`;
}

// The rest

function showHead(status) {
  const { gateway, kubelet, time } = status;
  byId("node").textContent = gateway.node;
  const name = ["kubelet", kubelet.release].filter(Boolean).join(" ");
  const dra = status.dra && status.dra.registration.registered ? "DRA" : "";
  const apis = [kubelet.api, dra].filter(Boolean).join(" and ");
  const spoken = kubelet.there ? `${name} speaks ${apis || "nothing yet"}` : "no kubelet";
  byId("about").textContent = `${spoken} (${age(kubelet.since, time)}), gateway ${gateway.version} (${age(gateway.since, time)})`;
}

function showDra(status) {
  const { dra, time } = status;
  byId("dra").hidden = !dra;
  if (!dra) return;
  const { registration, slices } = dra;
  const written = slices.written ? `, written ${age(slices.written, time)} ago` : "";
  const state = `${dra.driver} ${registration.state} for ${age(registration.since, time)}`;
  byId("published").textContent = `${state}; ${slices.count} slice${slices.count === 1 ? "" : "s"} with ${slices.devices} device${slices.devices === 1 ? "" : "s"}${written}`;
  byId("switches").replaceChildren(...dra.switches.map((one) => {
    const item = make("li");
    const since = one.since ? ` for ${age(one.since, time)}` : "";
    const waits = one.waits_for ? `; waits for ${one.waits_for}` : "";
    item.append(make("b", one.resources.join(", ")), ` ${one.state}${since}: ${one.because}${waits}`);
    return item;
  }));
  byId("claims").replaceChildren(...dra.claims.map((claim) => {
    const given = claim.given.map((one) => `${one.resource} ${(one.ids.length ? one.ids : one.devices).join(", ")}`);
    const pods = claim.pods.length ? ` for ${claim.pods.join(", ")}` : "";
    const item = make("li");
    item.append(make("b", `${claim.namespace}/${claim.name}`), `${pods}: ${given.join("; ")} `, make("span", claim.phase, "faint"));
    return item;
  }));
}

function showEvents(status) {
  const events = status.events.slice(-MOST_EVENTS).reverse();
  byId("events").replaceChildren(...events.map((event) => {
    const item = make("li");
    const about = [event.resource, event.devices.join(", ")].filter(Boolean).join(" ");
    item.append(make("time", event.time), " ", make("span", event.level, event.level), " ", event.message);
    if (about) item.append(" ", make("span", about, "faint"));
    return item;
  }));
}

async function ask() {
  try {
    const answer = await fetch("/status.json", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
    if (!answer.ok) throw new Error(`it answered with ${answer.status}`);
    const status = await answer.json();
    showHead(status);
    showVerdict(status);
    showResources(status);
    showDra(status);
    showEvents(status);
    byId("asked").textContent = `as of ${status.time}`;
  } catch (error) {
    const known = byId("asked").textContent;
    say("error", `The gateway doesn't answer (${error.message})${known ? `; below is how it was, ${known}` : ""}`);
  }
  setTimeout(ask, PAUSE);
}

ask();
