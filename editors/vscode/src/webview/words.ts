/** Numbers as text. */

/** Seconds as a user would say them: `0.4 s`, `12 s`, `3 min 05 s`, `1 h 02 min`. */
export function duration(seconds: number): string {
  if (seconds < 0.1) return "< 0.1 s";
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${pad(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${pad(Math.floor((whole % 3600) / 60))} min`;
}

function pad(figure: number): string {
  return String(figure).padStart(2, "0");
}

/** Tokens in short: `950`, `12.3k`, `1.2M`. */
export function tokens(count: number): string {
  if (count < 1000) return String(count);
  if (count < 999_950) return `${short(count / 1000)}k`;
  return `${short(count / 1_000_000)}M`;
}

function short(figure: number): string {
  return figure.toFixed(figure < 99.95 ? 1 : 0).replace(/\.0$/, "");
}

/** An amount of money with as many decimals as a small one needs. */
export function money(amount: number, currency: string): string {
  const decimals = amount !== 0 && Math.abs(amount) < 0.1 ? 4 : 2;
  try {
    return new Intl.NumberFormat("en", {
      style: "currency",
      currency,
      minimumFractionDigits: 2,
      maximumFractionDigits: decimals,
    }).format(amount);
  } catch (error) {
    // The agent's currency is not an ISO 4217 code.
    if (error instanceof RangeError) return `${amount.toFixed(decimals)} ${currency}`;
    throw error;
  }
}
