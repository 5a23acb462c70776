"use strict";
// Two things and no more: parts of a page that are live are asked for again, and keys move about.
// Everything works without it, by links, forms and reloading.

const POLL_MS = 2000;

async function refresh(part) {
  const asked = { headers: { "If-None-Match": `"${part.dataset.version}"` }, cache: "no-store" };
  const answer = await fetch(part.dataset.live, asked).catch(() => null);
  if (answer === null || answer.status !== 200) return;
  // The server has escaped what models wrote, and the page's policy runs no script of its markup.
  const drawn = new DOMParser().parseFromString(await answer.text(), "text/html");
  const focused = part.contains(document.activeElement) && document.activeElement.getAttribute("href");
  part.replaceChildren(...drawn.body.childNodes);
  if (focused) [...part.querySelectorAll("a")].find((a) => a.getAttribute("href") === focused)?.focus();
  part.dataset.version = answer.headers.get("ETag").replaceAll('"', "");
}

async function poll(part) {
  if (!document.hidden) await refresh(part);
  setTimeout(poll, POLL_MS, part);
}

function rows() {
  return [...document.querySelectorAll("[data-row]")];
}

function step(by) {
  const all = rows();
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by];
  if (!next) return;
  (next.matches("tr") ? next.querySelector("a") : next).focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

function follow(relation) {
  const link = document.querySelector(`a[rel="${relation}"]`);
  if (link) link.click();
}

const KEYS = {
  "j": () => step(1),
  "k": () => step(-1),
  "n": () => follow("next"),
  "p": () => history.back(),
  "/": () => document.querySelector("[data-filter]")?.focus(),
  "?": () => document.getElementById("help").showModal(),
};

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea, dialog[open]");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
  event.preventDefault();
  KEYS[event.key]();
});

document.getElementById("help-button").addEventListener("click", KEYS["?"]);
document.querySelectorAll("[data-live]").forEach((part) => setTimeout(poll, POLL_MS, part));
