// Shows what the board tells, and posts. Which threads are shown, and what stands below what, the
// board decides. Texts of others come into the page as text only.
"use strict";

const byId = (id) => document.getElementById(id);
let articles = new Map(); // what is shown, by key
let shownIn = byId("threads"); // or, while a whole new page comes, its threads
let shownBefore = 0;
let mostThreads = 0;
let answered = ""; // the key of the post that the form answers
const EARLIER = "answers an earlier post, not shown here";

function make(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// --- threads -------------------------------------------------------------------------------------

function note(text) {
  return make("p", "note doubt", text);
}

function articleOf(post) {
  const isForeign = post.foreign >= 0;
  const made = make("article", isForeign ? "foreign" : "");
  made.dataset.key = post.key;
  made.dataset.order = ++shownBefore;
  const head = make("div", "head");
  const author = make("span", "author", isForeign ? "no post of a board" : post.author);
  author.dir = "auto";
  const when = new Date(post.at);
  const time = make("time", "soft", when.toLocaleString());
  time.dateTime = when.toISOString();
  head.append(author, make("span", "soft", `at ${post.origin}`), time);
  if (isForeign) head.append(make("span", "soft", `${post.foreign} bytes`));
  const text = make("div", "text", post.text);
  text.dir = "auto";
  const reply = make("button", "plain", "Reply");
  reply.type = "button";
  reply.addEventListener("click", () => answer(post));
  made.append(head);
  if (post.absent) {
    made.append(note(post.absent === "lost" ? "answers a post that is lost" : EARLIER));
  }
  made.append(text, reply, make("div", "replies"));
  return made;
}

const repliesOf = (article) => article.lastElementChild;

function show(post) {
  const made = articleOf(post);
  const above = articles.get(post.answers) || articles.get(post.below);
  articles.set(post.key, made);
  let thread;
  if (above) {
    repliesOf(above).append(made);
    thread = above.closest(".thread");
  } else {
    thread = make("section", "thread");
    thread.append(made);
  }
  if (shownIn.firstElementChild === thread) return;
  const focused = thread.contains(document.activeElement) ? document.activeElement : null;
  shownIn.prepend(thread); // the thread with the newest post is first
  if (focused) focused.focus({ preventScroll: true });
}

function forget(article) {
  for (const each of article.querySelectorAll("article")) articles.delete(each.dataset.key);
  articles.delete(article.dataset.key);
}

function leaveOut(step) {
  for (const key of step.replies_out) {
    const gone = articles.get(key);
    if (!gone) continue;
    const moved = [...repliesOf(gone).children];
    for (const each of moved) each.firstElementChild.after(note(EARLIER));
    const all = [...gone.parentElement.children, ...moved].filter((each) => each !== gone);
    all.sort((one, other) => one.dataset.order - other.dataset.order); // as they came
    gone.parentElement.replaceChildren(...all);
    articles.delete(key);
  }
  for (const key of step.threads_out) {
    const first = articles.get(key);
    if (!first) continue;
    forget(first);
    first.closest(".thread").remove();
  }
}

function sayWhich(hidden) {
  const count = shownIn.children.length;
  const [threads, replies] = hidden;
  const out = [];
  if (threads) out.push(threads === 1 ? "1 older thread" : `${threads} older threads`);
  if (replies) out.push(replies === 1 ? "1 earlier reply" : `${replies} earlier replies`);
  let text = count === 1 ? "1 thread" : `${count} threads`;
  text += count ? ", the one with the newest post first." : ": nobody has posted yet.";
  if (out.length) {
    text += ` Not shown: ${out.join(" and ")}; a page has ${mostThreads} threads at most.`;
  }
  byId("which").textContent = text;
}

// --- the node ------------------------------------------------------------------------------------

function showState(state) {
  const { place } = state;
  document.title = `${state.group} at ${state.node}`;
  byId("title").textContent = document.title;
  byId("node").textContent = state.node;
  let parent = place.parent || "none";
  if (!place.parent && place.is_root) parent = "none: this node is the root";
  if (place.seeks !== null) parent += `, seeks one for ${place.seeks} s`;
  byId("parent").textContent = parent;
  byId("parent").className = place.seeks === null ? "" : "doubt";
  byId("path").textContent = place.path.join(" › ") || "none";
  byId("children").textContent = place.children.join(", ") || "none";
  byId("waiting").textContent = `This node ${state.waiting}`;
  byId("waiting").hidden = !state.waiting;
  byId("whole").hidden = Boolean(state.waiting || state.gap_count);
  const gaps = state.gaps.map((text) => make("li", "", text));
  const more = state.gap_count - gaps.length;
  if (more > 0) gaps.push(make("li", "", `and ${more} earlier gaps`));
  byId("gaps").replaceChildren(...gaps);
  if (state.ended) say(`the board has ended: ${state.ended}`, "bad");
}

function say(text, className) {
  byId("live").textContent = text;
  byId("live").className = className;
}

// --- what the board tells ------------------------------------------------------------------------

function listen(mark) {
  const source = new EventSource(mark ? `events?after=${encodeURIComponent(mark)}` : "events");
  const on = (name, act) => {
    source.addEventListener(name, (event) => {
      mark = event.lastEventId || mark;
      act(JSON.parse(event.data));
    });
  };
  let hidden = [0, 0];
  on("page", (page) => {
    articles = new Map();
    shownIn = make("div", "");
    mostThreads = page.threads;
    hidden = page.hidden;
  });
  on("shown", show);
  on("whole", () => {
    const threads = byId("threads");
    threads.replaceChildren(...shownIn.children);
    shownIn = threads;
    sayWhich(hidden);
  });
  on("post", (step) => {
    leaveOut(step);
    show(step.post);
    sayWhich(step.hidden);
  });
  on("state", showState);
  source.addEventListener("open", () => say("live", "good"));
  source.addEventListener("error", () => {
    say("the connection is lost: trying again", "doubt");
    if (source.readyState === EventSource.CLOSED) setTimeout(() => again(mark), 2000);
  });
}

async function again(mark) {
  // A browser gives up when it is refused: because the token is another one now, or for a while.
  const answer = await fetch("", { method: "HEAD" }).catch(() => null);
  if (answer && answer.status === 401) location.reload();
  else listen(mark);
}

// --- posting -------------------------------------------------------------------------------------

function answer(post) {
  answered = post ? post.key : "";
  byId("what").textContent = post ? "Reply" : "New thread";
  byId("original").hidden = !post;
  if (!post) return;
  const start = post.text.length > 120 ? `${post.text.slice(0, 120)}…` : post.text;
  byId("quoted").textContent = `${post.author || post.origin}: ${start}`;
  byId("text").focus();
}

function remembered(author) {
  try {
    if (author !== undefined) localStorage.setItem("author", author);
    return localStorage.getItem("author") || "";
  } catch {
    return ""; // this browser keeps nothing
  }
}

async function post(event) {
  event.preventDefault();
  const [author, text, sent] = [byId("author"), byId("text"), byId("sent")];
  const body = JSON.stringify({ author: author.value, text: text.value, reply_to: answered });
  remembered(author.value);
  byId("send").disabled = true;
  try {
    const headers = { "Content-Type": "application/json" };
    const reply = await fetch("post", { method: "POST", headers, body });
    if (reply.status === 401) location.reload();
    const said = reply.headers.get("content-type") === "application/json" ? await reply.json() : {};
    sent.className = reply.ok ? "soft" : "bad";
    sent.textContent = reply.ok ? "Posted." : said.error || `The board refused it (${reply.status}).`;
    if (reply.ok) {
      text.value = "";
      answer(null);
    }
  } catch {
    sent.className = "bad";
    sent.textContent = "The board cannot be reached. Look before you post it again.";
  }
  byId("send").disabled = false;
}

byId("author").value = remembered();
byId("cancel").addEventListener("click", () => answer(null));
byId("form").addEventListener("submit", post);
listen("");
