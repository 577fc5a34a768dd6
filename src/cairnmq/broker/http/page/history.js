// What the page has seen of things that change: the last minutes, in this browser only, for a bounded number of things.

export const KEPT = 60;
const SERIES_MAX = 2000;
const GROWTH = 5; // polls: lag grows if it was higher all through the last five than ever in the five before
const CALM = 3;

class Bounded {
  constructor() {
    this.kept = new Map();
  }

  of(key) {
    let found = this.kept.get(key);
    if (!found) {
      if (this.kept.size >= SERIES_MAX) this.kept.delete(this.kept.keys().next().value);
      found = { values: [], last: undefined, at: undefined };
      this.kept.set(key, found);
    }
    return found;
  }

  values(key) {
    return this.kept.get(key)?.values ?? [];
  }

  push(series, value) {
    series.values.push(value);
    if (series.values.length > KEPT) series.values.shift();
  }
}

// From counters that only grow to what was added in a second.
export class Rates extends Bounded {
  see(key, count, seconds) {
    const series = this.of(key);
    const passed = seconds - series.at;
    if (series.at !== undefined && passed > 0 && count >= series.last) {
      this.push(series, (count - series.last) / passed);
    } else if (series.at !== undefined && passed !== 0) {
      series.values = []; // the broker was started anew, or the topic made anew
    }
    if (passed !== 0) {
      series.last = count;
      series.at = seconds;
    }
  }

  // The last few steps together: traffic comes in lumps.
  now(key) {
    const last = this.values(key).slice(-CALM);
    return last.length ? last.reduce((sum, value) => sum + value, 0) / last.length : undefined;
  }
}

export class Levels extends Bounded {
  see(key, value, seconds) {
    const series = this.of(key);
    if (series.at === seconds) return;
    series.at = seconds;
    this.push(series, value);
  }

  grows(key) {
    const values = this.values(key).slice(-2 * GROWTH);
    if (values.length < 2 * GROWTH) return false;
    return Math.min(...values.slice(GROWTH)) > Math.max(...values.slice(0, GROWTH));
  }
}
