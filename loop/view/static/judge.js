"use strict";
// Keys of the judging page. All they do is press what is on the page, which works without them.

const form = document.getElementById("judge");
const RATINGS = { "1": "-1", "-": "-1", "2": "0", "0": "0", "3": "1", "+": "1", "=": "1" };
const BETTER = { "a": "0", "b": "1", "t": "tie" };
const DEEDS = { "u": "undo", "s": "skip" };

function rated(aspect) {
  return aspect.querySelector("input:checked") !== null;
}

function atHand(aspects) {
  return aspects.find((aspect) => aspect.contains(document.activeElement)) ??
    aspects.find((aspect) => !rated(aspect));
}

function rate(value) {
  const aspects = [...form.querySelectorAll("[data-aspect]")];
  const aspect = atHand(aspects);
  if (!aspect) return;
  aspect.querySelector(`input[value="${value}"]`).checked = true;
  const left = aspects.filter((one) => !rated(one));
  const next = left.find((one) => aspects.indexOf(one) > aspects.indexOf(aspect)) ?? left[0];
  if (next) next.querySelector("input").focus();
  else press('button[value="judge"]');
}

function press(selector) {
  form.querySelector(selector)?.click();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target.id === "comment") {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.target.closest("dialog[open]")) return;
  if (event.key in RATINGS) rate(RATINGS[event.key]);
  else if (event.key in BETTER) press(`button[name="better"][value="${BETTER[event.key]}"]`);
  else if (event.key in DEEDS) press(`button[value="${DEEDS[event.key]}"]`);
  else if (event.key === "c") document.getElementById("comment")?.focus();
  else if (event.key === "q") document.getElementById("end").click();
  else return;
  event.preventDefault();
});
