/** What time it is where the states are made; knows no DOM. */
import { ENDED, type Status } from './state.js';

export function isEnded(status: Status): boolean {
  return ENDED.includes(status);
}

/** After this long without news the view stops pretending that it knows. */
const STALE_AFTER_S = 30;
/** A first state older than this comes out of a saved notebook. */
const SAVED_AFTER_S = 120;

/**
 * States say when they were true, by the kernel's clock; between two of them the browser's clock
 * counts on. Clocks of two machines may differ, so only differences of the browser's are used.
 */
export class Clock {
  /** Note a state that arrived when the browser's clock said `now`. */
  accept(asOf: number, now: number): void {
    const isFirst = this._asOf === undefined;
    this._isSaved = isFirst
      ? Math.abs(now - asOf) > SAVED_AFTER_S
      : this._isSaved && asOf === this._asOf;
    if (asOf !== this._asOf) {
      this._acceptedAt = now;
    }
    this._asOf = asOf;
  }

  /** Seconds since the last news. */
  silence(now: number): number {
    return Math.max(0, now - this._acceptedAt);
  }

  isStale(now: number): boolean {
    return this._isSaved || this.silence(now) > STALE_AFTER_S;
  }

  /** The kernel's time, which stands still once there is no news. */
  time(now: number): number {
    return (this._asOf ?? 0) + (this.isStale(now) ? 0 : this.silence(now));
  }

  private _asOf: number | undefined;
  private _acceptedAt = 0;
  private _isSaved = false;
}
