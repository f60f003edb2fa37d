/** Estimates the time of the process that makes states; independent of the DOM. */
import { ENDED, type Status } from './state.js';

export function isEnded(status: Status): boolean {
  return ENDED.includes(status);
}

/** After this time without a new state the view is marked as outdated. */
const STALE_AFTER_S = 30;
/** A first state that is older is from a saved notebook. */
const SAVED_AFTER_S = 120;

/**
 * States have the time of the kernel's clock; between two states the browser's clock is added. Clocks
 * of two machines may differ, so only differences of the browser's clock are used.
 */
export class Clock {
  /** Accept a state that arrived at `now` of the browser's clock. */
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

  /** Seconds since the last new state. */
  silence(now: number): number {
    return Math.max(0, now - this._acceptedAt);
  }

  isStale(now: number): boolean {
    return this._isSaved || this.silence(now) > STALE_AFTER_S;
  }

  /** The kernel's time; it stands still while the view is outdated. */
  time(now: number): number {
    return (this._asOf ?? 0) + (this.isStale(now) ? 0 : this.silence(now));
  }

  private _asOf: number | undefined;
  private _acceptedAt = 0;
  private _isSaved = false;
}
